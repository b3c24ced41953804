"""Rows past their time go in the steps of the plan, and no other row does; on disk, with Spark."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse import Append, Compaction, Landing, Table, Ttl
from lakehouse.core.delta.commits import written_in
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.reasons import Reason
from lakehouse.core.ttl.plan import TtlPlan
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.ttl import run as ttl_run
from lakehouse.engine.ttl.run import plan, run
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime.now(tz=UTC).replace(microsecond=0)
DAY = timedelta(days=1)
KEY = "bronze/t"
PART = ("part",)


def table_of(*, by: tuple[str, ...] = (), **ttl: Any) -> Table:
    source = Landing(
        prefix="landing/t/",
        format="json",
        schema="id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, part STRING",
    )
    return Table(
        key=KEY,
        source=source,
        write=Append(partition_by=by),
        ttl=Ttl(**{"column": "at", "days": 30, **ttl}),
        compaction=Compaction(max_bytes_per_run=1),
    )


def add(
    lake: Lake, ages: dict[int, float | None], *, by: tuple[str, ...] = (), part: str = ""
) -> None:
    """One commit of rows: id -> age in days, or `None` for a row without a time."""
    times = [None if age is None else NOW - age * DAY for age in ages.values()]
    local = [time and time.replace(tzinfo=None) for time in times]
    rows = pa.table(
        {
            "id": pa.array([*ages], pa.int64()),
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
            "local": pa.array(local, pa.timestamp("us")),
            "day": pa.array([time and time.date() for time in times], pa.date32()),
            "part": [part] * len(times),
        }
    )
    write_deltalake(lake.settings.table_uri(KEY), rows, mode="append", partition_by=[*by])


def ids(lake: Lake, version: int | None = None) -> list[int]:
    found = DeltaTable(lake.settings.table_uri(KEY), version=version)
    return sorted(found.to_pyarrow_table(columns=["id"]).column("id").to_pylist())


def planned(lake: Lake, table: Table) -> TtlPlan:
    found = plan(lake, table)
    assert found is not None
    return found


def no_session() -> "SparkSession":
    raise AssertionError("nothing is to be deleted")


@pytest.mark.parametrize("column", ["at", "day"])
def test_rows_past_their_time_go_and_the_account_is_exact(
    lake: Lake, spark: "SparkSession", column: str
) -> None:
    """Whole files, a file that straddles the cutoff, a row without a time, and fresh rows."""
    add(lake, {1: 40, 2: 41})
    add(lake, {3: 50, 4: 2, 5: None})
    add(lake, {6: 1, 7: 29})
    table = table_of(column=column)
    before = planned(lake, table)
    assert (before.least_rows, before.most_rows, before.null_rows) == (2, 4, 1)
    outcome = run(lake, lambda: spark, table)
    assert ids(lake) == [4, 5, 6, 7]
    assert outcome.deleted_rows == 3
    [commit] = outcome.commits
    note = written_in(commit)
    assert (commit.operation, note["rows_moved"]) == ("DELETE", "ttl")
    assert note["cutoff_ms"] == outcome.plan.cutoff_ms and note["plan"]["least_rows"] == 2
    again = run(lake, no_session, table)
    assert (again.plan.reason, again.commits) == (Reason.NOTHING_PAST_THE_CUTOFF, ())
    assert ids(lake, 2) == [1, 2, 3, 4, 5, 6, 7]  # until the retention has passed


def test_whole_partitions_go_without_their_rows_being_read(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Their data files are gone from disk: a statement that read them would fail."""
    add(lake, {1: 40, 2: 60}, by=PART, part="old")
    add(lake, {3: 0}, by=PART, part="new")
    table = table_of(by=PART)
    lake.store.delete([each.name for each in lake.store.list(f"{KEY}/part=old")])
    assert [step.by_metadata for step in planned(lake, table).steps] == [True]
    outcome = run(lake, lambda: spark, table)
    rows = next(figure for figure in outcome.figures if figure.name == "rows")
    assert (rows.predicted, rows.actual) == (2, 2)
    assert ids(lake) == [3]


def test_a_table_partitioned_by_its_date_expires_by_one_condition(
    lake: Lake, spark: "SparkSession"
) -> None:
    by = ("day",)
    add(lake, {1: 40, 2: 60, 3: None}, by=by)
    add(lake, {4: 1}, by=by)
    outcome = run(lake, lambda: spark, table_of(by=by, column="day"))
    assert (outcome.deleted_rows, ids(lake)) == (2, [3, 4])
    assert [step.by_metadata for step in outcome.plan.steps] == [True]


def test_a_run_that_is_killed_between_any_two_steps_is_continued_by_the_next_one(
    lake: Lake, spark: "SparkSession"
) -> None:
    """One step by metadata, and two that rewrite a partition each."""
    for id_, part in enumerate(("b", "a", "c")):
        add(lake, {id_: 40, 10 + id_: 0 if part != "a" else 50}, by=PART, part=part)
    table = table_of(by=PART)
    assert [step.by_metadata for step in planned(lake, table).steps] == [True, False, False]
    for left in ([0, 2, 10, 12], [2, 10, 12]):
        with killed_at(ttl_run, "_carry_out", "after"):
            run(lake, lambda: spark, table)
        assert ids(lake) == left
    outcome = run(lake, lambda: spark, table)
    assert (ids(lake), len(outcome.commits)) == ([10, 12], 1)


def test_another_writer_s_rows_in_an_old_partition_stop_the_run_with_the_way_back(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the lock keeps others out of a partition that is removed without being read."""
    add(lake, {1: 40}, by=PART, part="x")
    add(lake, {2: 1}, by=PART, part="y")
    delete = statements.delete_rows

    def late(uri: str, conditions: Sequence[str]) -> str:
        add(lake, {9: 0}, by=PART, part="x")
        return delete(uri, conditions)

    monkeypatch.setattr(ttl_run.statements, "delete_rows", late)
    with pytest.raises(Broken, match=r"version 3 removed part=x/.*TO VERSION AS OF 2, unless"):
        run(lake, lambda: spark, table_of(by=PART))
    assert (ids(lake), ids(lake, 2)) == ([2], [1, 2, 9])


def test_a_partition_that_got_a_file_since_the_plan_is_not_removed(lake: Lake) -> None:
    add(lake, {1: 40}, by=PART, part="x")
    [step] = planned(lake, table_of(by=PART)).steps
    for part, is_refused in (("y", False), ("x", True)):
        add(lake, {2: 0}, by=PART, part=part)
        facts = lake.facts(KEY)
        assert facts is not None
        if not is_refused:
            ttl_run._check_unchanged(facts.snapshot, step)
            continue
        with pytest.raises(Transient, match=r"another writer added part=x/.* Run it again"):
            ttl_run._check_unchanged(facts.snapshot, step)


def test_a_table_without_a_ttl_or_without_a_log_is_refused(lake: Lake) -> None:
    assert plan(lake, table_of()) is None
    with pytest.raises(Refused, match="there is no table yet"):
        run(lake, no_session, table_of())
    none = Table(key=KEY, source=table_of().source, write=Append())
    with pytest.raises(Refused, match=r"the table declares no TTL. Use Table\(ttl=Ttl\("):
        plan(lake, none)
