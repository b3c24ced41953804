"""Bytes that no table's log has: what the newest inventory saw, and unfinished uploads."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakehouse import Append, Landing, Table
from lakehouse.core.costs.chargeback_columns import COLUMNS, LakeAccount, estimated_row
from lakehouse.core.costs.charges import Charge
from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import OpenUpload
from lakehouse.core.metrics.families import BYTES, OPERATIONS, SOURCE_READABLE
from lakehouse.core.units import DAY_MS, HOUR_MS
from lakehouse.engine.costs.chargeback_table import CHARGEBACK
from lakehouse.engine.costs.operations_table import arrow_schema
from lakehouse.engine.journal.journal import record_vacuum
from lakehouse.engine.lake import Lake
from lakehouse.engine.metrics import read
from lakehouse.engine.metrics.read import read_samples
from lakehouse.engine.metrics.totals import _NAME as TOTALS
from lakehouse.engine.store import DiskStore, S3Store
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.engine.journal.test_vacuums import past_vacuum
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.memory_store import MemoryStore

A = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
)
ACCOUNT = LakeAccount(address="/lake", region="us-east-1", prices_as_of="2026-11-01")


def bytes_by_part(lake: Lake) -> dict[str, float]:
    """The bytes of the table by part, without those of its log."""
    samples = read_samples(lake, [A], dagster_home=None)
    assert all(each.value for each in samples if each.metric is SOURCE_READABLE)
    found = {each.labels[2]: each.value for each in samples if each.metric is BYTES}
    return {part: size for part, size in found.items() if part not in ("live", "tombstoned")}


def charge(part: str, size_bytes: int, storage_class: str = "STANDARD") -> Charge:
    return Charge(
        day=datetime.now(UTC).date(),
        table=A.key,
        owner="",
        kind="storage",
        part=part,
        sku=f"storage/{storage_class}",
        quantity=Decimal(1),
        unit="GB-Months",
        unit_price=Decimal(1),
        storage_class=storage_class,
        size_bytes=size_bytes,
    )


def test_orphaned_noncurrent_and_log_bytes_are_those_of_the_newest_inventory(
    tmp_path: Path,
) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=DiskStore(tmp_path / "lake"))
    LogBuilder(lake.store, A.key).create().append([("a", 1_000)])
    assert bytes_by_part(lake) == {}
    charges = [
        charge("live", 1_000),
        charge("orphaned_young", 3),
        charge("orphaned_old", 4),
        charge("orphaned_old", 5, "STANDARD_IA"),
        charge("log_commits", 7),
    ]
    rows = [estimated_row(each, ACCOUNT, is_closed=False) for each in charges]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(COLUMNS))
    write_deltalake(tmp_path / "lake" / CHARGEBACK, table, partition_by=["x_mode", "x_day"])
    assert bytes_by_part(lake) == {"orphaned": 12, "noncurrent": 0, "log": 7}


def test_the_parts_of_unfinished_uploads_are_counted(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the right to list them, and for a table elsewhere, only they are unknown."""
    lake = Lake(settings=own_settings(tmp_path), store=S3Store(bucket, "some/lake"))
    LogBuilder(lake.store, A.key).create().append([("a", 1_000)])
    assert bytes_by_part(lake) == {"multipart": 0}
    client = boto3.client("s3")
    for name, size in (("x", 5), ("y", 6)):
        target = {"Bucket": bucket, "Key": f"some/lake/{A.key}/{name}"}
        upload = client.create_multipart_upload(**target)["UploadId"]
        client.upload_part(**target, UploadId=upload, PartNumber=1, Body=b"x" * size)
    assert bytes_by_part(lake) == {"multipart": 11}
    assert bytes_by_part(replace(lake, elsewhere={A.key: "s3a://other/a"})) == {}

    def refused(_: S3Store) -> list[OpenUpload]:
        raise Refused("no right to s3:ListBucketMultipartUploads")

    monkeypatch.setattr(read, "open_uploads", refused)
    assert bytes_by_part(lake) == {}


def test_counters_keep_what_logs_and_journal_have_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day is closed an hour after it ended, and its operations may then be forgotten."""
    lake = Lake(settings=own_settings(tmp_path), store=DiskStore(tmp_path / "lake"))
    LogBuilder(lake.store, A.key).create().append([("a", 1_000)])
    midnight_ms = 20_000 * DAY_MS

    def vacuums(now_ms: int, **keeps: bool) -> float:
        monkeypatch.setattr(read, "now_ms", lambda: now_ms)
        samples = read_samples(lake, [A], dagster_home=None, **keeps)
        [found] = [
            each.value
            for each in samples
            if each.metric is OPERATIONS and each.labels[2:] == ("vacuum", "succeeded")
        ]
        return found

    def add_vacuum(ended_ms: int) -> None:
        record = past_vacuum(ended_ms)
        record_vacuum(lake.store, A.key, record)

    add_vacuum(midnight_ms - 8 * DAY_MS)  # before the first day that is counted
    add_vacuum(midnight_ms - 1)
    assert vacuums(midnight_ms + 1, keeps_totals=False) == 1
    assert lake.store.stat(TOTALS) is None
    assert vacuums(midnight_ms + 1) == 1
    add_vacuum(midnight_ms + 5)
    assert vacuums(midnight_ms + HOUR_MS) == 2
    lake.store.delete([each.name for each in lake.store.list("_lakehouse/vacuums")])
    assert vacuums(midnight_ms + HOUR_MS) == 1  # the second one was forgotten on its own day
    add_vacuum(midnight_ms + 2 * HOUR_MS)
    assert vacuums(midnight_ms + 20 * DAY_MS) == 2
    lake.store.put(TOTALS, b"{}")
    assert vacuums(midnight_ms + 20 * DAY_MS) == 0
    lake.store.put(TOTALS, b"[7]")
    samples = read_samples(lake, [A], dagster_home=None)
    assert [
        each.labels for each in samples if each.metric is SOURCE_READABLE and not each.value
    ] == [("totals",)]
    assert not any(each.metric is OPERATIONS for each in samples)


def test_a_counter_stays_when_many_commits_follow_on_the_same_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The facts of a table hold its newest commits only."""
    lake = Lake(settings=own_settings(tmp_path), store=MemoryStore())
    monkeypatch.setattr(read, "now_ms", lambda: START_MS + HOUR_MS)
    story = LogBuilder(lake.store, A.key).create()
    story.commit("DELETE", user_metadata='{"rows_moved": "ttl"}', committed_ms=START_MS)

    def counted() -> float:
        samples = read_samples(lake, [A], dagster_home=None)
        return sum(each.value for each in samples if each.metric is OPERATIONS)

    assert counted() == 1
    for _ in range(510):
        story.commit("WRITE", committed_ms=START_MS + 1)
    assert counted() == 1
