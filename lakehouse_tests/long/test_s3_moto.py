"""A lake in a bucket, from the terminal: files land, tables are written, compacted, inventoried and vacuumed.

Every number of gold equals what plain pandas computes, and no S3 key is shown or written. `test_s3_journey`
repeats this on another server and kills commands on the way. Each test stands by itself.
"""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from deltalake import DeltaTable

from lakehouse.replay.play import STATE
from lakehouse_tests import oracle
from lakehouse_tests.conftest import link_year
from lakehouse_tests.journeys.world import World
from lakehouse_tests.s3_servers import BUCKET, s3_client, s3_server

KEY, SECRET, REGION = "key-that-nobody-may-see", "secret-that-nobody-may-see", "eu-central-1"
ROOT = "some/where"
START, UNTIL = (
    datetime(2013, 1, 2),
    datetime(2013, 1, 3),
)  # in UTC, so that its flights are of two days
REPLAY = ("replay", "--until", f"{UNTIL:%Y-%m-%d}")
TABLES = (
    *("bronze/airlines", "bronze/flight_events", "bronze/weather"),
    *("silver/flights", "silver/weather", "gold/carrier_daily", "gold/route_delays"),
)
MATERIALIZE = ("materialize", *TABLES)


@pytest.fixture(scope="module")
def server_name() -> str:
    """Which server of S3's protocol the lake's bucket is on."""
    return "moto"


@pytest.fixture(scope="module")
def killed_commands() -> list[tuple[tuple[str, ...], str]]:
    """Commands to kill first, each as soon as the bucket holds a key with this prefix."""
    return []


@pytest.fixture(scope="module")
def bucket(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a bucket `lake`; what the environment says to reach it."""
    with s3_server(
        server_name, tmp_path_factory.mktemp(server_name), key=KEY, secret=SECRET, region=REGION
    ) as told:
        yield told


@pytest.fixture(scope="module")
def client(bucket: dict[str, str]) -> Any:
    """A client of the bucket's server."""
    return s3_client(bucket)


@pytest.fixture(scope="module")
def world(
    bucket: dict[str, str],
    client: Any,
    killed_commands: list[tuple[tuple[str, ...], str]],
    prepared_home: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A lake in the bucket and its server. A day has landed and is in all tables."""
    home = link_year(prepared_home, tmp_path_factory.mktemp("world"))
    world = World(home, LAKEHOUSE_ROOT=f"s3://{BUCKET}/{ROOT}", **bucket)
    begin_replay(client)
    world.ask("server", "start")
    for command, prefix in killed_commands:
        world.kill(*command, when=lambda prefix=prefix: keys(client, prefix))
    # Two batches, so that there is something to compact.
    world.ask("replay", "--hours", "12")
    world.ask("materialize", "bronze/flight_events")
    world.ask(*REPLAY)
    world.ask(*MATERIALIZE)
    yield world
    world.ask("server", "stop")
    assert world.processes() == []


def begin_replay(client: Any) -> None:
    """Makes `START` the first hour of the lake's replay."""
    start = f"{START:%Y-%m-%dT%H}"
    state = json.dumps({"start": start, "next": start}).encode()
    client.put_object(Bucket=BUCKET, Key=f"{ROOT}/{STATE}", Body=state)


def landed(client: Any, prefix: str) -> list[dict[str, Any]]:
    """What lies in the landing area, line by line."""
    files = [
        client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for key in keys(client, f"landing/{prefix}/")
    ]
    return [json.loads(line) for file in files for line in file.splitlines()]


def keys(client: Any, prefix: str) -> list[str]:
    """What lies below a prefix of the lake."""
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=BUCKET, Prefix=f"{ROOT}/{prefix}"
    )
    return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


def rows(bucket: dict[str, str], table: str) -> pandas.DataFrame:
    """A table's rows, in an order of their own."""
    frame = DeltaTable(
        f"s3://{BUCKET}/{ROOT}/{table}", storage_options={**bucket, "AWS_ALLOW_HTTP": "true"}
    ).to_pandas()
    return frame.sort_values(list(frame.columns), ignore_index=True)


def test_gold_equals_the_oracle_and_no_landed_row_is_lost_or_doubled(
    world: World, bucket: dict[str, str], client: Any
) -> None:
    before = {key: rows(bucket, key) for key in TABLES}
    for name, frame in oracle.gold(START, UNTIL).items():
        assert oracle.differences(frame, before[f"gold/{name}"]) == []
    told = {
        each["table"]: each["row_count"]
        for each in world.ask("health")
        if each["version"] is not None
    }
    assert told == {key: len(frame) for key, frame in before.items()}
    flights, weather = landed(client, "flight_events"), landed(client, "weather")
    once = {
        "bronze/flight_events": len(flights),
        "bronze/weather": len(weather),
        "silver/flights": len({event["flight_id"] for event in flights}),
        "silver/weather": len(
            {(observed["origin"], observed["time_hour"]) for observed in weather}
        ),
    }
    assert once.items() <= told.items()


def test_a_compaction_does_what_its_plan_says_and_a_second_one_nothing(world: World) -> None:
    plan = world.ask("compact", "bronze/flight_events", "--dry-run")
    assert plan["files_removed"] > plan["files_added"] > 0
    done = world.ask("compact", "bronze/flight_events")
    assert {name: done[name] for name in plan} == plan
    names = ("files_removed", "files_added", "bytes_removed")
    assert [done[f"actual_{name}"] for name in names] == [plan[name] for name in names]
    again = world.ask("compact", "bronze/flight_events")
    assert (again["version_after"], again["reason"]) == (None, "NOTHING_SHARES_A_BIN")
    newest, *_ = world.ask("history", "bronze/flight_events")["commits"]
    assert (newest["version"], newest["operation"]) == (done["version_after"], "OPTIMIZE")
    assert newest["compaction"]["as_predicted"]
    assert newest["compaction"]["figures"]["files_removed"]["actual"] == plan["files_removed"]


def test_the_bucket_is_listed_into_a_table_and_every_live_file_is_there(world: World) -> None:
    told = world.ask("inventory", "load")
    assert (told["table"], told["missing_files"]) == ("inventory/lake", 0)
    assert told["rows_loaded"] == told["object_count"] > 100
    report = world.ask("inventory", "report")
    assert (
        report["inventory"]["name"] == told["report"]
        and report["inventory"]["object_count"] == told["object_count"]
    )


def test_a_vacuum_of_all_tables_says_of_each_why_nothing_goes_and_every_file_stays(
    world: World, client: Any
) -> None:
    before = [key for table in TABLES for key in keys(client, f"{table}/")]
    [named] = world.ask("vacuum", "bronze/flight_events", "--dry-run")
    assert (named["reason"], named["paths"]) == ("NOTHING_PAST", [])
    told = world.ask("vacuum")
    assert {each["files"] for each in told if "files" in each} == {0}
    assert Counter(each["reason"] for each in told) == {"NOTHING_PAST": len(TABLES), "NO_TABLE": 2}
    assert {*before} <= {*keys(client, "")}
    world.ask("inventory", "load", "--configuration", "lakehouse-scan")
    assert {
        each["table"]: each["missing"]
        for each in world.ask("inventory", "report")["tables"]
        if each["missing"]
    } == {}


def test_no_key_is_shown_or_written(world: World) -> None:
    shown = world.command("doctor", "--settings", "--json").stdout.encode()
    files = {path: path.read_bytes() for path in world.home.rglob("*") if path.is_file()}
    assert any(path.name == "spark-defaults.conf" for path in files)
    assert [
        path for path, data in files.items() if KEY.encode() in data or SECRET.encode() in data
    ] == []
    assert KEY.encode() not in shown and SECRET.encode() not in shown
    assert not (world.home / "lake").exists()
