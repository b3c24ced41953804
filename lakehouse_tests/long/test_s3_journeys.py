"""A lake in a bucket, from the terminal: files land, tables are written, compacted, inventoried and vacuumed.

Every number of gold equals what plain pandas computes, and no S3 key is shown or written. The same on two servers of S3's protocol, on
one of which commands are killed on the way; and on a standalone cluster of two workers, by a driver per run and by a Connect server.
Each test stands by itself.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas
import pytest
from deltalake import DeltaTable

from lakehouse.replay.play import STATE, reference_files
from lakehouse_tests import oracle
from lakehouse_tests.cluster import ConnectServer, deployed_conf, standalone
from lakehouse_tests.conftest import link_year
from lakehouse_tests.journeys.world import World
from lakehouse_tests.s3_servers import BUCKET, s3_client, s3_server

KEY, SECRET, REGION = "key-that-nobody-may-see", "secret-that-nobody-may-see", "eu-central-1"
ROOT = "some/where"
# In UTC, so that its flights are of two days.
START, UNTIL = datetime(2013, 1, 2), datetime(2013, 1, 3)
REPLAY = ("replay", "--until", f"{UNTIL:%Y-%m-%d}")
TABLES = (
    *("bronze/airlines", "bronze/flight_events", "bronze/weather"),
    *("silver/flights", "silver/weather", "gold/carrier_daily", "gold/route_delays"),
)
MATERIALIZE = ("materialize", *TABLES)
# Commands that are killed as soon as the bucket holds a key with this prefix.
KILLED = ((REPLAY, "landing/flight_events/2013-01-02T04"), (MATERIALIZE, "silver/flights/part-"))
ON_A_CLUSTER = ("driver per run", "connect server")


class BucketWorld(World):
    """A lakehouse whose lake is in a bucket."""

    def __init__(self, home: Path, bucket: Mapping[str, str], **settings: str) -> None:
        super().__init__(home, LAKEHOUSE_ROOT=f"s3://{BUCKET}/{ROOT}", **bucket, **settings)
        self.bucket, self.client = bucket, s3_client(bucket)

    def keys(self, prefix: str) -> list[str]:
        """What lies below a prefix of the lake."""
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=BUCKET, Prefix=f"{ROOT}/{prefix}")
        return [entry["Key"] for page in found for entry in page.get("Contents", ())]

    def landed(self, prefix: str) -> list[dict[str, Any]]:
        """What lies in the landing area, line by line."""
        files = [
            self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
            for key in self.keys(f"landing/{prefix}/")
        ]
        return [json.loads(line) for file in files for line in file.splitlines()]

    def rows(self, table: str) -> pandas.DataFrame:
        """A table's rows, in an order of their own."""
        options = {**self.bucket, "AWS_ALLOW_HTTP": "true"}
        frame = DeltaTable(f"s3://{BUCKET}/{ROOT}/{table}", storage_options=options).to_pandas()
        return frame.sort_values(list(frame.columns), ignore_index=True)

    def play_a_day(self) -> None:
        """Lands `START` to `UNTIL` and writes all tables, in two batches, so that there is something to compact."""
        self.ask("replay", "--hours", "12")
        self.ask("materialize", "bronze/flight_events")
        self.ask(*REPLAY)
        self.ask(*MATERIALIZE)


class ClusterWorld(BucketWorld):
    """A lakehouse of commands that each run in a process of their own, as a driver per run needs."""

    def ask(self, *arguments: str) -> Any:
        done = self.command(*arguments, "--json")
        assert done.returncode == 0, (arguments, done.returncode, done.stdout, done.stderr)
        return json.loads(done.stdout)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = super().command(*arguments)
        assert KEY not in done.stdout + done.stderr and SECRET not in done.stdout + done.stderr
        return done


@pytest.fixture(scope="module", params=["moto", "ministack", *ON_A_CLUSTER])
def kind(request: pytest.FixtureRequest) -> str:
    """Which server of S3's protocol the lake's bucket is on; or, with moto's, how runs reach the cluster."""
    return request.param


@pytest.fixture(scope="module")
def world(
    kind: str, prepared_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BucketWorld]:
    """A lake in the bucket. A day has landed and is in all tables."""
    folder = tmp_path_factory.mktemp("world")
    home = link_year(prepared_home, folder / "home")
    server_name = "ministack" if kind == "ministack" else "moto"
    with ExitStack() as stack:
        bucket = stack.enter_context(
            s3_server(server_name, folder, key=KEY, secret=SECRET, region=REGION)
        )
        contents = {file.name: file.content for file in reference_files()}
        contents[STATE] = json.dumps({"next": f"{START:%Y-%m-%dT%H}"}).encode()
        for name, content in contents.items():
            s3_client(bucket).put_object(Bucket=BUCKET, Key=f"{ROOT}/{name}", Body=content)
        if kind in ON_A_CLUSTER:
            yield _on_cluster(stack, kind, home, bucket)
            return
        world = BucketWorld(home, bucket)
        world.ask("server", "start")
        for command, prefix in KILLED if kind == "ministack" else ():
            world.kill(*command, when=lambda prefix=prefix: world.keys(prefix))
        world.play_a_day()
        yield world
        world.ask("server", "stop")
        assert world.processes() == []


def _on_cluster(stack: ExitStack, kind: str, home: Path, bucket: dict[str, str]) -> ClusterWorld:
    cluster = stack.enter_context(standalone(home.parent, bucket))
    spark = {"LAKEHOUSE_SPARK": cluster.address, "SPARK_LOCAL_IP": "127.0.0.1"}
    if kind == "connect server":
        server = ConnectServer(cluster=cluster, conf=deployed_conf(bucket))
        spark = stack.enter_context(server.running()).environment
    world = ClusterWorld(home, bucket, **spark)
    # A driver that starts on a busy machine may take longer than the doctor waits.
    examined = world.ask("doctor", *(() if kind == "connect server" else ("--no-spark",)))
    assert [each for each in examined["checks"] if each["state"] != "ok"] == []
    world.play_a_day()
    return world


def test_gold_equals_the_oracle_and_no_landed_row_is_lost_or_doubled(world: BucketWorld) -> None:
    before = {key: world.rows(key) for key in TABLES}
    for name, frame in oracle.gold(START, UNTIL).items():
        assert oracle.differences(frame, before[f"gold/{name}"]) == []
    told = {each["table"]: each["row_count"] for each in world.ask("health") if "version" in each}
    assert told == {key: len(frame) for key, frame in before.items()}
    flights, weather = world.landed("flight_events"), world.landed("weather")
    once = {
        "bronze/flight_events": len(flights),
        "bronze/weather": len(weather),
        "silver/flights": len({event["flight_id"] for event in flights}),
        "silver/weather": len({(seen["origin"], seen["time_hour"]) for seen in weather}),
    }
    assert once.items() <= told.items()
    world.ask(*MATERIALIZE)
    for key, frame in before.items():
        pandas.testing.assert_frame_equal(frame, world.rows(key))


def test_a_compaction_does_what_its_plan_says_and_a_second_one_nothing(world: BucketWorld) -> None:
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


def test_the_bucket_is_listed_into_a_table_and_every_live_file_is_there(world: BucketWorld) -> None:
    told = world.ask("inventory", "load")
    assert (told["table"], told["missing_files"]) == ("inventory/lake", 0)
    assert told["rows_loaded"] == told["object_count"] > 100
    inventory = world.ask("inventory", "report")["inventory"]
    assert inventory["name"] == told["report"]
    assert inventory["object_count"] == told["object_count"]


def test_a_vacuum_of_all_tables_says_of_each_why_no_file_goes(world: BucketWorld) -> None:
    before = [key for table in TABLES for key in world.keys(f"{table}/")]
    [named] = world.ask("vacuum", "bronze/flight_events", "--dry-run")
    assert (named["reason"], named["paths"]) == ("NOTHING_PAST", [])
    told = world.ask("vacuum")
    assert {each["files"] for each in told if "files" in each} == {0}
    assert Counter(each["reason"] for each in told) == {"NOTHING_PAST": len(TABLES), "NO_TABLE": 2}
    assert {*before} <= {*world.keys("")}
    world.ask("inventory", "load", "--configuration", "lakehouse-scan")
    tables = world.ask("inventory", "report")["tables"]
    assert {each["table"]: each["missing"] for each in tables if each["missing"]} == {}


def test_no_key_is_shown_or_written(world: BucketWorld, kind: str) -> None:
    shown = world.command("doctor", "--settings", "--json").stdout.encode()
    files = {path: path.read_bytes() for path in world.home.rglob("*") if path.is_file()}
    if kind not in ON_A_CLUSTER:
        assert any(path.name == "spark-defaults.conf" for path in files)
    assert [
        path for path, data in files.items() if KEY.encode() in data or SECRET.encode() in data
    ] == []
    assert KEY.encode() not in shown and SECRET.encode() not in shown
    assert not (world.home / "lake").exists()
