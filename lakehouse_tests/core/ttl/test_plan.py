"""Which rows are past their time, in which steps they go, and what the plan promises; times of exact milliseconds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lakehouse.core.costs.compaction_speed import DEFAULT_RATES
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.archive import Archive, Ttl
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, Merge, Overwrite
from lakehouse.core.delta.snapshot import Column, DataFile
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Reason
from lakehouse.core.ttl.facts import (
    UNKNOWN,
    TimeBounds,
    TtlFacts,
    bounds_in_statistics,
    bounds_of_partition,
)
from lakehouse.core.ttl.plan import TtlPlan, plan_ttl
from lakehouse_tests.core.example_snapshots import data_file, snapshot

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


def file(path: str, day: str | None = None, **more: Any) -> DataFile:
    return data_file(10, path, partition=() if day is None else (("d", day),), **more)


def planned(
    files: Mapping[DataFile, TimeBounds],
    table: Table = TABLE,
    *,
    ttl: Ttl = TTL,
    by: Sequence[str] = (),
    properties: dict[str, str] | None = None,
) -> TtlPlan:
    layout = snapshot([*files], columns=COLUMNS)
    layout = replace(layout, partition_columns=tuple(by), properties=properties or {})
    facts = TtlFacts(snapshot=layout, bounds={file.path: each for file, each in files.items()})
    return plan_ttl(table, ttl, facts, rates=DEFAULT_RATES, now_ms=NOW)


def steps(plan: TtlPlan) -> list[tuple[bool, list[str]]]:
    return [(step.by_metadata, sorted(step.files)) for step in plan.steps]


def test_rows_before_the_cutoff_go_and_those_at_it_stay() -> None:
    plan = planned({file("past"): PAST, file("edge"): EDGE, file("fresh"): FRESH})
    assert plan.cutoff_ms == CUTOFF and plan.reason is Reason.PAST_THE_CUTOFF
    assert steps(plan) == [(False, ["edge", "past"])]
    assert (plan.expired_files, plan.straddling_files, plan.straddling_bytes) == (1, 1, 10)
    assert (plan.least_rows, plan.most_rows, plan.null_rows) == (100, 200, 0)
    assert plan.gone_ms == NOW + 7 * DAY
    assert plan.sentence == (
        "all rows of 1 file (10 B), and some of up to 1 file (10 B): from before "
        "2026-04-28 20:26 UTC, 30 days before now"
    )
    assert plan.notes == (
        (
            "at least 100 and at most 200 rows are deleted in 1 step. They can still be read as "
            "older versions; the first vacuum after 2026-06-04 20:26 UTC deletes their files for "
            "good"
        ),
    )
    assert plan.seconds > 0 and plan.usd > 0


def test_a_plan_that_finds_nothing_says_so() -> None:
    plan = planned({file("fresh"): FRESH})
    assert (plan.reason, plan.steps, plan.notes) == (Reason.NOTHING_PAST_THE_CUTOFF, (), ())
    assert plan.sentence == "no row is from before 2026-04-28 20:26 UTC, 30 days before now"
    assert (plan.seconds, plan.usd, plan.least_rows, plan.most_rows) == (0, 0, 0, 0)


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
    """Its rows are read, and the condition on the time decides."""
    plan = planned({file("x", "2020-01-01"): bounds}, by=["d"])
    assert steps(plan) == [(False, ["x"])]
    assert (plan.expired_files, plan.least_rows) == (0, 0)


def test_null_times_are_kept_and_counted() -> None:
    nulls = TimeBounds(null_count=100, is_tight=True)
    plan = planned({file("nulls"): nulls, file("some"): replace(PAST, null_count=30)})
    assert steps(plan) == [(False, ["some"])]
    assert (plan.least_rows, plan.most_rows, plan.null_rows) == (0, 70, 130)
    assert "130 rows without a time are kept" in plan.notes


def test_deleted_rows_are_not_counted_again() -> None:
    plan = planned({file("past", deleted=40): replace(PAST, is_tight=False)})
    assert (plan.least_rows, plan.most_rows) == (60, 60)
    assert planned({file("x", rows=None): PAST}).most_rows is None


def test_whole_partitions_go_by_metadata_and_the_rest_by_partitions_of_bounded_size() -> None:
    table = replace(TABLE, compaction=Compaction(max_bytes_per_run=20))
    files = {
        file("a", "2020-01-01"): PAST,
        file("b", "2020-01-02"): PAST,
        file("c", "2020-01-03"): PAST,
        file("c fresh", "2020-01-03"): FRESH,
        **{file(f"e{day}", f"2020-02-0{day}"): EDGE for day in (1, 2, 3)},
    }
    plan = planned(files, table, by=["d"])
    assert steps(plan) == [(True, ["a", "b"]), (False, ["c", "e1", "e2"]), (False, ["e3"])]
    assert plan.steps[0].partitions == ((("d", "2020-01-01"),), (("d", "2020-01-02"),))
    assert [step.scanned_bytes for step in plan.steps] == [0, 20, 10]
    assert (plan.least_rows, plan.most_rows) == (300, 600)


def test_a_partition_whose_value_is_written_in_two_ways_is_one_partition() -> None:
    """A condition on one of them holds for the fresh file, too."""
    files = {file("a", "2020-01-01"): PAST, file("fresh", "2020-1-1"): FRESH}
    assert steps(planned(files, by=["d"])) == [(False, ["a"])]


def test_an_adopted_table_loses_nothing_by_its_partitions_alone() -> None:
    """Another program may add new rows to the partition at the same moment."""
    adopted = Table(key="bronze/t", write=Adopted(uri="/w/t"), ttl=TTL)
    assert steps(planned({file("a", "2020-01-01"): PAST}, adopted, by=["d"])) == [(False, ["a"])]


def test_a_table_partitioned_by_its_time_needs_one_step_without_reading_rows() -> None:
    ttl = Ttl(column="d", days=30)
    column = COLUMNS[1]
    files = [file(day, day) for day in ("2026-04-27", "2026-04-28", "2026-05-28")]
    files.append(file("null", "__HIVE_DEFAULT_PARTITION__"))
    files[-1] = replace(files[-1], partition=(("d", None),))
    table = replace(TABLE, ttl=ttl)
    bounds = {each: bounds_of_partition(each, column) for each in files}
    plan = planned(bounds, table, ttl=ttl, by=["d"])
    # The day of the cutoff, 2026-04-28, is kept whole.
    assert plan.cutoff_ms == datetime(2026, 4, 28, tzinfo=UTC).timestamp() * 1_000
    assert steps(plan) == [(True, ["2026-04-27"])]
    assert plan.steps[0].partitions is None
    assert (plan.least_rows, plan.most_rows, plan.null_rows) == (100, 100, 100)


NEWEST = Ttl(column="at", days=30, clock="newest_row")


def test_a_dead_feed_keeps_its_rows_by_the_clock_of_the_newest_row() -> None:
    last = NOW - 400 * DAY
    files = {file("old"): tight(last - 20 * DAY, last), file("gone"): tight(0, last - 31 * DAY)}
    plan = planned(files, ttl=NEWEST)
    assert (plan.newest_ms, plan.cutoff_ms) == (last, last - 30 * DAY)
    assert steps(plan) == [(False, ["gone"])]
    assert "30 days before the newest row (2025-04-23 20:26 UTC)" in plan.sentence
    assert steps(planned(files)) == [(False, ["gone", "old"])]


@pytest.mark.parametrize(
    ("bounds", "newest_ms"),
    [
        (tight(NOW - DAY, NOW + DAY), NOW),  # a clock that is ahead
        (tight(NOW - DAY, NOW + DAY + 1), NOW - DAY),  # an error
        (tight(NOW - DAY, 253_402_300_799_000), NOW - DAY),  # the year 9999
        (tight(253_402_300_799_000, 253_402_300_799_000), NOW - 90 * DAY),
        (replace(tight(NOW - 2 * DAY, NOW), is_tight=False), NOW - 2 * DAY),  # perhaps deleted
        (UNKNOWN, NOW - 90 * DAY),
    ],
)
def test_a_time_that_is_no_row_of_now_does_not_make_the_newest_row_newer(
    bounds: TimeBounds, newest_ms: int
) -> None:
    files = {file("old"): tight(NOW - 99 * DAY, NOW - 90 * DAY), file("x"): bounds}
    assert planned(files, ttl=NEWEST).newest_ms == newest_ms


def test_without_any_known_time_nothing_goes_by_the_clock_of_the_newest_row() -> None:
    plan = planned({file("x"): UNKNOWN}, ttl=NEWEST)
    assert (plan.cutoff_ms, plan.steps) == (None, ())
    assert plan.sentence == (
        "nothing can be planned: the log records no time of at, so the newest row is unknown"
    )


def test_files_without_statistics_and_steps_that_cannot_be_smaller_are_named() -> None:
    table = replace(TABLE, source=replace(SOURCE), compaction=Compaction(max_bytes_per_run=5))
    plan = planned({file("x"): UNKNOWN}, table)
    assert plan.notes[1].startswith("Delta reads 1 file without statistics of at as a whole.")
    assert plan.notes[2].startswith("one step may rewrite 10 B, more than max_bytes_per_run (5 B)")


def test_a_derived_or_inferred_column_is_checked_when_a_run_is_planned() -> None:
    derived = replace(SOURCE, derived={"day": "to_date(at)"})
    assert replace(TABLE, source=derived, ttl=Ttl(column="day", days=1)).ttl is not None
    assert replace(TABLE, source=replace(SOURCE, schema=None)).ttl == TTL
    with pytest.raises(Refused, match=r"ttl is 31\. Use Ttl\("):
        replace(TABLE, ttl=31)  # type: ignore[arg-type]
    with pytest.raises(Refused, match=r"archive is 31\. Use Archive\("):
        replace(TABLE, archive=31)  # type: ignore[arg-type]


def test_an_archive_and_a_ttl_are_two_ends() -> None:
    table = replace(TABLE, write=Append(partition_by=("d",)), archive=Archive())
    [*_, note] = planned({file("x"): PAST}, table).notes
    assert note == "archived rows stay in the archive until Archive.keep_days have passed"


def test_a_merged_table_may_get_deleted_rows_again() -> None:
    upstream = replace(TABLE, key="bronze/u")
    merge = Merge(keys=("id",), order_by=("at",))
    table = Table(key="silver/t", inputs=(upstream,), transform=lambda u: u, write=merge, ttl=TTL)
    [*_, note] = planned({file("x"): PAST}, table).notes
    assert note == "a later change of a deleted key inserts its row again, until the next run"


@pytest.mark.parametrize(
    ("ttl", "properties", "why"),
    [
        (Ttl(column="id", days=1), {}, "the column id is bigint. Use a DATE or TIMESTAMP column"),
        (Ttl(column="x", days=1), {}, "there is no column x. Use one of its .*: at, d"),
        (TTL, {"delta.appendOnly": "true"}, r"delta\.appendOnly forbids deletions"),
    ],
)
def test_a_table_whose_rows_cannot_expire_is_refused(
    ttl: Ttl, properties: dict[str, str], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        planned({file("x"): PAST}, ttl=ttl, properties=properties)


@pytest.mark.parametrize(
    ("write", "ttl", "why"),
    [
        (Overwrite(), TTL, "each run of an Overwrite table writes all rows again"),
        (Append(), Ttl(column="ta", days=1), "unknown column 'ta'. Did you mean 'at'"),
        (Append(), Ttl(column="id", days=1), "id is BIGINT. Use a DATE or TIMESTAMP column"),
    ],
)
def test_a_declaration_whose_rows_cannot_expire_is_refused(write: Any, ttl: Ttl, why: str) -> None:
    with pytest.raises(Refused, match=why):
        Table(key="bronze/t", source=SOURCE, write=write, ttl=ttl)


@pytest.mark.parametrize("days", [0, -1, 1.5, True])
def test_a_ttl_needs_whole_days(days: Any) -> None:
    with pytest.raises(Refused, match=r"Ttl\.days is .*Use a whole number, 1 or more"):
        Ttl(column="at", days=days)


@pytest.mark.parametrize(
    ("statistics", "bounds"),
    [
        (None, UNKNOWN),
        ("{", UNKNOWN),
        ("[]", UNKNOWN),
        ({"numRecords": 1}, TimeBounds(is_tight=True)),
        ({"minValues": {"at": "no time"}, "nullCount": {"at": "x"}}, TimeBounds(is_tight=True)),
        (
            {
                "minValues": {"at": "2026-01-01T00:00:00.001Z"},
                "maxValues": {"at": "2026-01-01T01:00:00.002+01:00"},
                "nullCount": {"at": 4},
            },
            tight(1_767_225_600_001, 1_767_225_600_002, 4),
        ),
        (
            {"maxValues": {"at": "+10000-01-01T00:00:00.000Z"}, "tightBounds": False},
            TimeBounds(),
        ),
    ],
)
def test_statistics_in_the_log_are_read_or_unknown(statistics: Any, bounds: TimeBounds) -> None:
    text = statistics if isinstance(statistics, str | None) else json.dumps(statistics)
    assert bounds_in_statistics(text, COLUMNS[0]) == bounds
