"""What operations without Spark ask of S3, held at their numbers; `python -m benchmarks.requests` counts those with Spark, too."""

from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from moto.core.models import DEFAULT_ACCOUNT_ID as ACCOUNT
from moto.s3.models import s3_backends

from lakehouse import Append, Landing, Table
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import open_lake, undeclared_tables
from lakehouse.land import waiting_files as queue
from lakehouse.land.plan.batches import KnownFile, Ledger
from lakehouse.land.plan.choose_files import choose_batch
from lakehouse.land.waiting_files import Discovery
from lakehouse.store import TimeBudget
from lakehouse.watch.due import plan_operations
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.land.test_waiting_files import asked_of
from lakehouse_tests.log_builder import LogBuilder

SOURCE = Landing(prefix="landing/orders/", format="json", schema="id STRING")


def test_a_plan_lists_the_log_of_each_table_once_and_looks_for_the_state_of_the_lake(
    bucket: str, tmp_path: Path
) -> None:
    declared = {"LAKEHOUSE_TABLES": "lakehouse_tests.support.example_terminal"}
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake", **declared)
    story = LogBuilder(open_lake(settings).store, "bronze/orders").create()
    story.append([("a", 1)]).append([("b", 1)])
    lake, tables = open_lake(settings), declared_tables(settings)
    plan_operations(lake, tables, [*tables.values()])
    # Three logs and landed batches, and three commits. There is neither a table of operations
    # (failures, vacuums and speeds) nor one of records (pauses, and cold and unreadable files).
    assert lake.store.requests == {"ListObjectsV2": 3 + 1, "GetObject": 3, "HeadObject": 5}


def test_undeclared_tables_cost_a_listing_per_layer_and_a_look(bucket: str, tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))
    for key in ("bronze/orders", "gold/sums"):
        LogBuilder(lake.store, key).create().append([("a", 1)]).store_data()
    lake.store.requests.clear()
    orders = Table(key="bronze/orders", source=SOURCE, write=Append())
    assert undeclared_tables(lake, [orders]) == ("gold/sums",)
    assert lake.store.requests == {"ListObjectsV2": 3, "HeadObject": 1}


def test_a_look_at_the_landing_area_lists_it_and_with_a_queue_asks_that_alone(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_WAIT_SECONDS", 0)
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake"))
    url = boto3.client("sqs").create_queue(QueueName=bucket)["QueueUrl"]
    for number in range(1_001):
        s3_backends[ACCOUNT]["aws"].put_object(bucket, f"lake/landing/orders/{number}.json", b"{}")
    tables = [
        Table(key="bronze/orders", source=each, write=Append())
        for each in (SOURCE, replace(SOURCE, queue=url))
    ]
    asked: list[dict[str, int]] = []
    for table in tables:
        discovery = Discovery(lake, [table], TimeBudget())
        seen = {
            each.name: KnownFile(size_bytes=2, modified_ms=each.modified_ms)
            for each in lake.store.list("landing/orders")
        }
        ledger = Ledger(newest=None, seen=seen)
        for now in (0, 30):
            lake.store.requests.clear()
            queued = asked_of(discovery)
            discovery.receive()
            found = discovery.waiting_files(table, ledger, refresh=False, now=now)
            assert choose_batch(found, ledger, SOURCE, Append()).batch is None
            asked.append({**lake.store.requests, **queued})
    assert asked[:2] == [{"ListObjectsV2": 2}] * 2
    assert asked[2:] == [{"ListObjectsV2": 2, "ReceiveMessage": 1}, {"ReceiveMessage": 1}]
