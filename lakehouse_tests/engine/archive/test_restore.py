"""Archived rows come back exactly, into a new table or into their own, whenever the process dies."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse import Archive
from lakehouse.core.archive.restore_plan import RestoreOutcome, RestoreRequest
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.units import DAY_MS
from lakehouse.engine.archive import expire as expire_module
from lakehouse.engine.archive import restore as module
from lakehouse.engine.archive.expire import rehearse_expire
from lakehouse.engine.archive.read import read_table
from lakehouse.engine.archive.records import archive_contents, archive_operations
from lakehouse.engine.archive.restore import plan_restore, run_restore
from lakehouse.engine.clock import now_ms
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, TableSession
from lakehouse_tests.engine.archive import by_hand
from lakehouse_tests.engine.example import (
    add_events,
    copies,
    event,
    events,
    facts_of,
    rows_in,
    version_of,
)
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TABLE = replace(events, archive=Archive(older_than_days=31))
KEY = TABLE.key
DAY_1, DAY_2, DAY_3 = "2013-01-01", "2013-01-02", "2013-01-03"
BACK = RestoreRequest()


@pytest.fixture(autouse=True)
def _archived(lake: Lake) -> None:
    """A table with three days, of which two are in its archive."""
    add_events(lake, *(event(day, 5, "a", day=day) for day in (1, 2, 3)))
    by_hand.archive(lake, KEY, DAY_1, DAY_2, created_ms=now_ms())


def session_of(lake: Lake, spark: "SparkSession") -> TableSession:
    return TableSession(lake=lake, spark=spark, table=TABLE)


def restored(lake: Lake, spark: "SparkSession", request: RestoreRequest = BACK) -> RestoreOutcome:
    return run_restore(session_of(lake, spark), request)


def ids_with_archive(lake: Lake, spark: "SparkSession") -> list[int]:
    rows = read_table(session_of(lake, spark), with_archive=True)
    return sorted(row["id"] for row in rows.select("id").collect())


def held(lake: Lake) -> list[str]:
    """The days that the archive has."""
    partitions = archive_contents(lake, facts_of(lake, KEY)).partitions
    return sorted(str(each.partition[0][1]) for each in partitions)


def test_chosen_partitions_become_a_new_table_and_stay_in_the_archive(
    lake: Lake, spark: "SparkSession", tmp_path: Path
) -> None:
    """A place that holds anything is refused, also a second time."""
    place = str(tmp_path / "new")
    request = RestoreRequest(target=place, values=[{"day": DAY_2}])
    plan = plan_restore(lake, TABLE, request)
    assert plan.sentence.startswith("copies 1 partition of the archive (1 rows in 1 file, ")
    assert plan.notes == ()
    outcome = restored(lake, spark, request)
    assert (outcome.version_after, outcome.plan.row_count) == (0, 1)
    rows = spark.read.format("delta").load(place)
    assert [(row["id"], str(row["day"])) for row in rows.collect()] == [(2, DAY_2)]
    assert held(lake) == [DAY_1, DAY_2]
    with pytest.raises(Refused, match=r"/new already contains files"):
        restored(lake, spark, request)


def test_restored_partitions_leave_the_archive_and_tables_downstream_read_nothing_twice(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their archived files go when no reader of an older version needs them. A first read has the archive, too."""
    outcome = write_table(lake, spark, copies)
    assert outcome.explanation.sentence.endswith("; with 2 rows of its archive")
    add_events(lake, event(4, 5, "a", day=3))
    outcome = restored(lake, spark, RestoreRequest(values=[{"day": DAY_1}]))
    assert (outcome.plan.row_count, outcome.version_after) == (1, version_of(lake, KEY))
    assert "leaves restored partitions in the table for 31 days" in outcome.plan.notes[1]
    assert rows_in(lake, KEY, "id") == [(1,), (3,), (4,)]
    assert held(lake) == [DAY_2] and ids_with_archive(lake, spark) == [1, 2, 3, 4]
    assert restored(lake, spark, RestoreRequest(values=[{"day": DAY_1}])).version_after is None
    write_table(lake, spark, copies)
    assert rows_in(lake, copies.key, "id") == [(1,), (2,), (3,), (4,)]
    names = {file.name for file in lake.store.list(f"archive/{KEY}")}
    plan = rehearse_expire(lake, TABLE)
    assert plan is not None and (len(names), plan.files) == (2, {})
    later_ms = now_ms() + 8 * DAY_MS
    monkeypatch.setattr(expire_module, "now_ms", lambda: later_ms)
    plan = rehearse_expire(lake, TABLE)
    assert plan is not None and [DAY_1 in name for name in plan.files] == [True]


def test_a_killed_restore_is_withdrawn_and_rows_that_do_not_agree_are_refused(
    lake: Lake, spark: "SparkSession"
) -> None:
    with killed_at(module, "write_frame", "before"):
        restored(lake, spark)
    assert ids_with_archive(lake, spark) == [1, 2, 3]
    assert [each.kind for each in archive_operations(lake.store, KEY)] == ["archive", "restore"]
    [operation] = archive_operations(lake.store, KEY)[:1]
    name = operation.files[0].archived
    content = lake.store.read(name)
    lake.store.delete([name])
    with pytest.raises(Broken, match="restore of bronze/events: "):
        restored(lake, spark)
    assert [each.kind for each in archive_operations(lake.store, KEY)] == ["archive"]
    lake.store.put(name, content)
    assert restored(lake, spark).plan.row_count == 2
    assert (rows_in(lake, KEY, "id"), held(lake)) == ([(1,), (2,), (3,)], [])
