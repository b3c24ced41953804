"""A lake in a bucket from the terminal: landed, written, compacted, told, vacuumed; no key is left behind. Each test stands by itself."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakehouse_tests.conftest import link_year
from lakehouse_tests.journeys.world import World
from lakehouse_tests.s3_servers import BUCKET, s3_client, s3_server

KEY, SECRET, REGION = "key-that-nobody-may-see", "secret-that-nobody-may-see", "eu-central-1"
BRONZE = "key:bronze/weather or key:bronze/flight_events"
SELECTION = f"{BRONZE} or key:silver/weather or key:silver/flights"


@pytest.fixture(scope="module")
def server_name() -> str:
    """Which server of S3's protocol the lake's bucket is on."""
    return "moto"


@pytest.fixture(scope="module")
def bucket(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a bucket `lake`; what the environment says to reach it."""
    with s3_server(server_name, tmp_path_factory.mktemp(server_name), key=KEY, secret=SECRET, region=REGION) as told:
        yield told


@pytest.fixture(scope="module")
def world(bucket: dict[str, str], prepared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A lake in the bucket, and its server; what landed twice is in four tables, in two writes of those that read files."""
    world = World(link_year(prepared_home, tmp_path_factory.mktemp("world")), LAKEHOUSE_ROOT="s3://lake/some/where", **bucket)
    world.ask("server", "start")
    for hours, selection in (("12", BRONZE), ("6", SELECTION)):
        world.ask("replay", "--hours", hours)
        world.ask("materialize", selection)
    yield world
    world.ask("server", "stop")
    assert world.processes() == []


def landed(bucket: dict[str, str], prefix: str) -> list[dict[str, Any]]:
    """What lies in the landing area, line by line."""
    client = s3_client(bucket)
    files = [client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys(bucket, f"landing/{prefix}/")]
    return [json.loads(line) for file in files for line in file.splitlines()]


def keys(bucket: dict[str, str], prefix: str) -> list[str]:
    """What lies below a prefix of the lake."""
    pages = s3_client(bucket).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"some/where/{prefix}")
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def test_what_lands_is_in_the_tables_once(world: World, bucket: dict[str, str]) -> None:
    flights, weather = landed(bucket, "flight_events"), landed(bucket, "weather")
    rows = {each["table"]: each["row_count"] for each in world.ask("health") if each["version"] is not None}
    assert rows == {
        "bronze/flight_events": len(flights),
        "bronze/weather": len(weather),
        "silver/flights": len({event["flight_id"] for event in flights}),
        "silver/weather": len({(observed["origin"], observed["time_hour"]) for observed in weather}),
    }


def test_a_compaction_does_what_its_plan_says_and_a_second_one_nothing(world: World) -> None:
    [plan] = world.ask("plan", "bronze/flight_events")
    assert plan["files_removed"] > plan["files_added"] > 0
    done = world.ask("compact", "bronze/flight_events")
    # How it stood among the others is the plan's alone; what is done is the same.
    assert {name: done[name] for name in plan if name != "fleet"} == {name: plan[name] for name in plan if name != "fleet"}
    names = ("files_removed", "files_added", "bytes_removed")
    assert [done[f"actual_{name}"] for name in names] == [plan[name] for name in names]
    again = world.ask("compact", "bronze/flight_events")
    assert (again["version_after"], again["reason"]) == (None, "NOTHING_SHARES_A_BIN")
    newest, *_ = world.ask("history", "bronze/flight_events")["commits"]
    assert (newest["version"], newest["operation"]) == (done["version_after"], "OPTIMIZE")
    assert newest["compaction"]["predicted_files_removed"] == newest["compaction"]["actual_files_removed"] == plan["files_removed"]


def test_the_bucket_is_listed_into_a_table_and_every_live_file_is_there(world: World) -> None:
    told = world.ask("inventory", "load")
    assert (told["table"], told["missing_files"]) == ("inventory/lake", 0)
    assert told["rows_loaded"] == told["object_count"] > 100
    report = world.ask("inventory", "report")
    assert report["report"]["name"] == told["report"] and report["report"]["object_count"] == told["object_count"]


def test_a_vacuum_of_all_tables_says_of_each_why_nothing_goes_and_every_file_stays(world: World, bucket: dict[str, str]) -> None:
    before = keys(bucket, "bronze/") + keys(bucket, "silver/")
    [named] = world.ask("vacuum", "bronze/flight_events", "--dry-run")
    assert (named["reason"], named["paths"]) == ("NOTHING_PAST", [])
    told = world.ask("vacuum")
    assert {each["files"] for each in told} == {0}
    assert Counter(each["reason"] for each in told) == {"NOTHING_PAST": 4, "NO_TABLE": len(told) - 4}
    assert {*before} <= {*keys(bucket, "bronze/"), *keys(bucket, "silver/")}
    world.ask("inventory", "scan")
    assert {each["table"]: each["missing"] for each in world.ask("inventory", "report")["tables"] if each["missing"]} == {}


def test_no_key_is_shown_or_written(world: World) -> None:
    shown = world.command("config", "--json").stdout.encode()
    assert world.environment["AWS_ENDPOINT_URL"].encode() in shown
    files = {path: path.read_bytes() for path in world.home.rglob("*") if path.is_file()}
    assert any(path.name == "spark-defaults.conf" for path in files)
    assert [path for path, data in files.items() if KEY.encode() in data or SECRET.encode() in data] == []
    assert KEY.encode() not in shown and SECRET.encode() not in shown
    assert not (world.home / "lake").exists()
