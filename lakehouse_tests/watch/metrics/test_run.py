"""Bytes that no table's log has, as the newest inventory saw them; and the counters."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from lakehouse import Append, Landing, Table
from lakehouse.base.clock import now_ms
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore
from lakehouse.watch.costs.plan import Charge
from lakehouse.watch.metrics.plan import BYTES, OPERATIONS, SOURCE_READABLE, Counters
from lakehouse.watch.metrics.run import read_samples
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.lake.test_vacuums import past_vacuum, record_vacuum
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.watch.costs.story import record_charges

A = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
)


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
        part=part,
        sku=f"storage/{storage_class}",
        quantity=Decimal(1),
        unit="GB-Months",
        unit_price=Decimal(1),
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
        charge("log", 7),
        charge("archived", 8),
    ]
    record_charges(tmp_path / "lake", charges)
    assert bytes_by_part(lake) == {"archived": 8, "orphaned": 12, "noncurrent": 0, "log": 7}


def test_only_operations_since_the_start_are_counted(tmp_path: Path) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=DiskStore(tmp_path / "lake"))
    LogBuilder(lake.store, A.key).create().append([("a", 1_000)])
    started_ms = now_ms()
    counters = Counters(since_ms=started_ms)

    def vacuums() -> list[float]:
        samples = read_samples(lake, [A], dagster_home=None, counters=counters)
        return [
            each.value
            for each in samples
            if each.metric is OPERATIONS and each.labels[2:] == ("vacuum", "succeeded")
        ]

    record_vacuum(lake, A, past_vacuum(started_ms - 1))
    assert vacuums() == [0]
    record_vacuum(lake, A, past_vacuum(started_ms + 1))
    assert [vacuums(), vacuums()] == [[1], [1]]
    samples = read_samples(lake, [A], dagster_home=None)
    assert not any(each.metric is OPERATIONS for each in samples)
