"""Which rows have expired, and that exactly these are deleted."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse import Append, Archive, Landing, Overwrite, Table, Ttl
from lakehouse.base.errors import Refused
from lakehouse.base.operation import Figure
from lakehouse.base.reasons import Reason
from lakehouse.delta.snapshot import Column, DataFile
from lakehouse.lake.lake import Lake
from lakehouse.retain.plan.archive import ArchiveFacts, plan_archive
from lakehouse.retain.plan.ttl import UNKNOWN, TimeBounds, TtlPlan, bounds_in_statistics, plan_ttl
from lakehouse.retain.run import ttl as ttl_run
from lakehouse.retain.run.ttl import run_ttl
from lakehouse.spark import statements
from lakehouse_tests.support.example_snapshots import data_file, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = 86_400_000
NOW = 1_780_000_000_000  # 2026-05-28 20:26:40 UTC
CUTOFF = NOW - 30 * DAY
TTL = Ttl(column="at", days=30)
SOURCE = Landing(prefix="landing/t/", format="json", schema="at TIMESTAMP, d DATE, id BIGINT")
TABLE = Table(key="bronze/t", source=SOURCE, write=Append(), ttl=TTL)
COLUMNS = tuple(
    Column(name=name, type=type_)
    for name, type_ in {"at": "timestamp", "d": "date", "id": "bigint"}.items()
)


def tight(first_ms: int, last_ms: int, nulls: int = 0) -> TimeBounds:
    return TimeBounds(min_ms=first_ms, max_ms=last_ms, null_count=nulls, is_tight=True)


PAST, EDGE = tight(CUTOFF - 9, CUTOFF - 1), tight(CUTOFF - 1, CUTOFF)
FRESH = tight(CUTOFF, NOW)


def planned(
    files: Mapping[DataFile, TimeBounds],
    *,
    ttl: Ttl = TTL,
    properties: dict[str, str] | None = None,
) -> TtlPlan:
    layout = replace(snapshot([*files], columns=COLUMNS), properties=properties or {})
    bounds = {file.path: each for file, each in files.items()}
    return plan_ttl(TABLE, ttl, layout, bounds, now_ms=NOW)


def file(path: str) -> DataFile:
    return data_file(10, path)


def test_rows_before_the_cutoff_go_and_those_at_it_stay() -> None:
    plan = planned({file("past"): PAST, file("edge"): EDGE, file("fresh"): FRESH})
    assert plan.cutoff_ms == CUTOFF and plan.reason is Reason.PAST_THE_CUTOFF
    assert (plan.expired_files, plan.straddling_files, plan.straddling_bytes) == (1, 1, 10)
    assert plan.row_count is None
    assert plan.sentence == (
        "all rows of 1 file (10 B) and some rows of up to 1 file (10 B): from before"
        " 2026-04-28 20:26 UTC, 30 days before now"
    )
    assert planned({file("past"): PAST, file("fresh"): FRESH}).row_count == 100
    idle = planned({file("fresh"): FRESH})
    assert (idle.is_idle, idle.seconds, idle.usd) == (True, 0, 0)
    assert idle.sentence == "no row is from before 2026-04-28 20:26 UTC, 30 days before now"


@pytest.mark.parametrize(
    "bounds",
    [
        UNKNOWN,
        replace(PAST, max_ms=None),
        replace(PAST, null_count=None),
        replace(PAST, null_count=3),
        replace(PAST, max_ms=CUTOFF),
    ],
)
def test_a_file_that_may_hold_other_rows_is_never_past_the_cutoff(bounds: TimeBounds) -> None:
    plan = planned({file("x"): bounds})
    assert (plan.expired_files, plan.straddling_files, plan.row_count) == (0, 1, None)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        ([tight(NOW - 40 * DAY, NOW - 9 * DAY)], NOW - 9 * DAY),
        ([tight(NOW - 9 * DAY, NOW + 400 * DAY)], NOW - 9 * DAY),  # one row of the year 9999
        ([tight(NOW + 400 * DAY, NOW + 400 * DAY), tight(1, 7)], 7),
        ([tight(1, NOW + 100)], NOW),  # clocks differ a little
        ([replace(tight(5, 9), is_tight=False)], 5),  # a deletion vector may hide the newest
        ([UNKNOWN], None),
    ],
)
def test_a_dead_feed_keeps_its_rows_by_the_clock_of_the_newest_row(
    newest: list[TimeBounds], expected: int | None
) -> None:
    ttl = replace(TTL, clock="newest_row")
    plan = planned({file(str(i)): each for i, each in enumerate(newest)}, ttl=ttl)
    assert plan.cutoff_ms == (None if expected is None else expected - 30 * DAY)
    if expected is None:
        assert plan.is_idle and plan.reason is Reason.PLAN_REFUSED


def test_a_date_keeps_the_day_of_the_cutoff_whole() -> None:
    ttl = Ttl(column="d", days=30)
    midnight = CUTOFF - CUTOFF % DAY
    plan = planned({file("x"): tight(midnight - DAY, midnight - DAY)}, ttl=ttl)
    assert (plan.cutoff_ms, plan.expired_files) == (midnight, 1)


def test_a_cutoff_before_the_first_year_is_the_first_day() -> None:
    plan = planned({file("x"): tight(1, 7)}, ttl=Ttl(column="d", days=999_999))
    assert plan.is_idle and plan.sentence.startswith("no row is from before 1-01-01")
    assert plan.cutoff_ms is not None
    assert statements.is_before(COLUMNS[1], plan.cutoff_ms) == "`d` < DATE '0001-01-01'"
    layout = snapshot([], columns=COLUMNS, partition_columns=["d"])
    never = Archive(older_than_days=999_999)
    plan_archive(TABLE, never, ArchiveFacts(snapshot=layout), now_ms=NOW).as_json()


def test_statistics_that_cannot_be_read_are_unknown() -> None:
    column = COLUMNS[0]
    for text in (None, "", "[", '{"minValues": 3}', '{"maxValues": {"at": 5}}'):
        assert bounds_in_statistics(text, column).max_ms is None


def test_what_cannot_expire_is_refused() -> None:
    with pytest.raises(Refused, match=r"no date or timestamp column id. Use one of: at, d"):
        planned({}, ttl=Ttl(column="id", days=1))
    with pytest.raises(Refused, match="appendOnly"):
        planned({}, properties={"delta.appendOnly": "true"})
    with pytest.raises(Refused, match="Overwrite"):
        Table(key="gold/t", inputs=(TABLE,), transform=lambda t: t, write=Overwrite(), ttl=TTL)


@pytest.mark.spark
def test_exactly_the_expired_rows_are_deleted(lake: Lake, spark: "SparkSession") -> None:
    now = datetime.now(tz=UTC)

    def add(ages: dict[int, float | None]) -> None:
        times = [None if age is None else now - timedelta(days=age) for age in ages.values()]
        at = pa.array(times, pa.timestamp("us", tz="UTC"))
        rows = pa.table({"id": pa.array([*ages], pa.int64()), "at": at})
        write_deltalake(lake.settings.table_uri("bronze/t"), rows, mode="append")

    add({1: 40, 2: 31})
    add({3: 31, 4: 29, 5: None})
    real = ttl_run.statements.delete_rows

    def meanwhile(*arguments: Any) -> str:
        add({6: 50, 7: 1})
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ttl_run.statements, "delete_rows", meanwhile)
        outcome = run_ttl(lake, TABLE, lambda: spark)
    assert outcome.figures[0] == Figure("rows", None, 4)
    table = DeltaTable(lake.settings.table_uri("bronze/t"))
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == [4, 5, 7]
    assert run_ttl(lake, TABLE, lambda: pytest.fail("nothing to do")).version_after is None
