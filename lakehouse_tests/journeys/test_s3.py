"""A lake in a bucket from the terminal: landed, written, compacted, told; doing it again changes nothing, and no key is left anywhere."""

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from lakehouse_tests.conftest import free_port
from lakehouse_tests.journeys.world import World, wait_until

KEY, SECRET, REGION = "key-that-nobody-may-see", "secret-that-nobody-may-see", "eu-central-1"
SELECTION = "key:bronze/weather or key:silver/weather or key:bronze/flight_events or key:silver/flights"


@pytest.fixture(scope="module")
def bucket() -> Iterator[dict[str, str]]:
    """A server of S3's protocol with a bucket `lake`; what the environment says to reach it."""
    port = free_port()
    environ = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as moto:
        try:
            wait_until("the bucket is there", lambda: made_bucket(environ), seconds=60)
            yield environ
        finally:
            moto.terminate()


def s3(environ: dict[str, str]) -> Any:
    """A client that owes nothing to this process's environment."""
    return boto3.client(
        "s3", endpoint_url=environ["AWS_ENDPOINT_URL"], aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION
    )


def made_bucket(environ: dict[str, str]) -> bool:
    """Whether the server answers, and has made it."""
    try:
        s3(environ).create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": REGION})
    except EndpointConnectionError:
        return False
    return True


@pytest.fixture(scope="module")
def world(bucket: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A lake in the bucket, and its server."""
    world = World(tmp_path_factory.mktemp("world"), LAKEHOUSE_ROOT="s3://lake/some/where", **bucket)
    ask(world, "server", "start")
    yield world
    ask(world, "server", "stop")
    assert world.processes() == []


def ask(world: World, *arguments: str) -> Any:
    """What a command says with --json; it must end well."""
    done = world.command(*arguments, "--json")
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return json.loads(done.stdout)


def landed(bucket: dict[str, str], prefix: str) -> list[dict[str, Any]]:
    """What lies in the landing area, line by line."""
    client = s3(bucket)
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="lake", Prefix=f"some/where/landing/{prefix}/")
    files = [client.get_object(Bucket="lake", Key=entry["Key"])["Body"].read() for page in pages for entry in page["Contents"]]
    return [json.loads(line) for file in files for line in file.splitlines()]


def versions(world: World) -> dict[str, int]:
    return {each["table"]: each["version"] for each in ask(world, "plan") if each["version"] is not None}


def test_what_lands_is_in_the_tables_once(world: World, bucket: dict[str, str]) -> None:
    for hours in ("12", "6"):
        ask(world, "replay", "--hours", hours)
        ask(world, "materialize", SELECTION)
    before = versions(world)
    assert len(before) == 4
    assert [each["rows_written"] for each in ask(world, "materialize", SELECTION)] == [0] * 4
    assert versions(world) == before
    flights, weather = landed(bucket, "flight_events"), landed(bucket, "weather")
    rows = {each["table"]: each["row_count"] for each in ask(world, "health", *before)}
    assert rows == {
        "bronze/flight_events": len(flights),
        "bronze/weather": len(weather),
        "silver/flights": len({event["flight_id"] for event in flights}),
        "silver/weather": len({(observed["origin"], observed["time_hour"]) for observed in weather}),
    }


def test_a_compaction_does_what_its_plan_says_and_a_second_one_nothing(world: World) -> None:
    [plan] = ask(world, "plan", "bronze/flight_events")
    assert plan["files_removed"] > plan["files_added"] > 0
    done = ask(world, "compact", "bronze/flight_events")
    # How it stood among the others is the plan's alone; what is done is the same.
    assert {name: done[name] for name in plan if name != "fleet"} == {name: plan[name] for name in plan if name != "fleet"}
    names = ("files_removed", "files_added", "bytes_removed")
    assert [done[f"actual_{name}"] for name in names] == [plan[name] for name in names]
    again = ask(world, "compact", "bronze/flight_events")
    assert (again["version_after"], again["reason"]) == (None, "NOTHING_SHARES_A_BIN")
    newest, *_ = ask(world, "history", "bronze/flight_events")["commits"]
    assert (newest["version"], newest["operation"]) == (done["version_after"], "OPTIMIZE")
    assert newest["compaction"]["predicted_files_removed"] == newest["compaction"]["actual_files_removed"] == plan["files_removed"]


def test_the_bucket_is_listed_into_a_table_and_every_live_file_is_there(world: World) -> None:
    told = ask(world, "inventory", "load")
    assert (told["table"], told["missing_files"]) == ("inventory/lake", 0)
    assert told["rows_loaded"] == told["object_count"] > 100
    report = ask(world, "inventory", "report")
    assert report["report"]["name"] == told["report"] and report["report"]["object_count"] == told["object_count"]


def test_no_key_is_shown_or_written(world: World) -> None:
    shown = world.command("config", "--json").stdout.encode()
    assert world.environment["AWS_ENDPOINT_URL"].encode() in shown
    files = {path: path.read_bytes() for path in world.home.rglob("*") if path.is_file()}
    assert any(path.name == "spark-defaults.conf" for path in files)
    assert [path for path, data in files.items() if KEY.encode() in data or SECRET.encode() in data] == []
    assert KEY.encode() not in shown and SECRET.encode() not in shown
    assert not (world.home / "lake").exists()
