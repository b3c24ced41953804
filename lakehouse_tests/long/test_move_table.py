"""A renamed table moves with all that the lake keeps under its key, and loses nothing whoever is killed or writes next to it."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from lakehouse import Append, Merge, table
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.move import MovePlan
from lakehouse.core.journal_records import CompactionTry, Pause
from lakehouse.core.reasons import Reason
from lakehouse.engine.adoption.find_tables import undeclared_tables
from lakehouse.engine.evolution.move_facts import plan_move
from lakehouse.engine.evolution.move_table import TableMove, run_move
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.quarantine.entries import quarantine_key
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.journal.moves import move_record
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark import delta_writes
from lakehouse_tests.engine.example import (
    copies,
    counts,
    event,
    events,
    facts_of,
    land,
    rows_in,
    states,
)
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD, NEW = events.key, "bronze/happenings"
moved = replace(events, key=NEW, formerly=OLD)


@table(key=states.key, inputs=[moved], write=Merge(keys=("id",), order_by=("at",)))
def states_now(happenings: Any) -> Any:
    """The newest state of each id, of the table with its new key."""
    return happenings.select("id", "at", "state")


@table(key=copies.key, inputs=[moved], write=Append())
def copies_now(happenings: Any) -> Any:
    """Every event, once, of the table with its new key."""
    return happenings.select("id", "state")


DECLARED = (moved, states_now, copies_now, counts)


def planned(lake: Lake) -> MovePlan:
    """The plan of the move, which there is."""
    plan = plan_move(lake, moved, DECLARED)
    assert plan is not None
    return plan


def test_a_renamed_table_goes_on_as_if_it_had_always_had_its_key(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Its last load was killed between quarantine and rows, and the move is killed twice."""
    session = TableSession(lake=lake, spark=spark, table=moved)
    land(lake, "1.json", [event(1, 5, "planned"), {"at": "no id"}])
    write_table(lake, spark, events)
    land(lake, "2.json", [event(1, 6, "left"), event(2, 5, "planned", day=2)])
    for each in (events, states, copies):
        write_table(lake, spark, each)
    journal, paused = Journal(lake.store), Pause(table=OLD, since_ms=1, why="inventory of May")
    journal.pause(paused)
    for folder in ("pins", "archives"):
        lake.store.put(f"_lakehouse/{folder}/{OLD}/1.json", b"{}")
    journal.record_try(OLD, CompactionTry(ended_ms=5, result="failed", why="no room"))
    land(lake, "3.json", [event(3, 5, "planned"), {"at": "no id either"}])
    with killed_at(commit_rows, "write_rows", "before"):
        write_table(lake, spark, events)
    before = facts_of(lake, OLD).snapshot
    rows = rows_in(lake, OLD, "id", "state", "_source_file")

    with pytest.raises(Refused, match=f"Use `lakehouse evolve apply {NEW}`"):
        write_table(lake, spark, moved)
    plan = planned(lake)
    assert {each.kind for each in plan.moved} == {
        "data files",
        "log",
        "quarantine",
        "landed batches",
        "staged batches",
        "records of upkeep",
    }
    with killed_at(delta_writes, "write_frame", "after"):
        run_move(session, plan, DECLARED)
    with killed_at(TableMove, "delete_old", "before"):
        run_move(session, planned(lake), DECLARED)
    with pytest.raises(Refused, match=f"Use `lakehouse evolve apply {NEW}`"):
        write_table(lake, spark, moved)
    outcome = run_move(session, planned(lake), DECLARED)
    # A commit without rows adds no data file, and no checksum of one, to a partitioned table.
    assert (outcome.count, outcome.deleted) == (0, plan.count + plan.added_count - 2)

    left = [file.name for file in lake.store.list("") if OLD in file.name]
    assert (left, move_record(lake.store, moved), plan_move(lake, moved, DECLARED)) == (
        [],
        None,
        None,
    )
    assert undeclared_tables(lake, DECLARED) == ()
    after = facts_of(lake, NEW).snapshot
    assert (after.table_id, after.version) == (before.table_id, before.version + 1)
    assert rows_in(lake, NEW, "id", "state", "_source_file") == rows
    uri = lake.settings.table_uri(NEW)
    assert DeltaTable(uri, version=0).to_pyarrow_table()["id"].to_pylist() == [1]
    assert journal.pause_of(NEW) == replace(paused, table=NEW)
    assert lake.store.read(f"_lakehouse/pins/{NEW}/1.json") == b"{}"
    for folder in ("pins", "archives"):
        lake.store.delete([f"_lakehouse/{folder}/{NEW}/1.json"])
    assert [each.why for each in journal.tries(NEW)] == ["no room"]

    outcomes = [write_table(lake, spark, each) for each in (moved, states_now, copies_now)]
    assert [(each.reason, each.rows_written) for each in outcomes] == [
        (Reason.BATCH_UNFINISHED, 1),
        (Reason.INPUTS_CHANGED, 1),
        (Reason.INPUTS_CHANGED, 1),
    ]
    assert facts_of(lake, quarantine_key(NEW)).snapshot.row_count == 2
    review = retry(session, [], dry_run=False)
    land(lake, "4.json", [event(4, 5, "planned")])
    outcomes = [write_table(lake, spark, each) for each in (moved, states_now, copies_now)]
    assert review.lines == 2
    assert [each.rows_written for each in outcomes] == [1, 1, 1]
    ids = [(1, "left"), (2, "planned"), (3, "planned"), (4, "planned")]
    assert rows_in(lake, states.key, "id", "state") == ids
    assert rows_in(lake, copies.key, "id", "state") == sorted([*ids, (1, "planned")])
    assert facts_of(lake, quarantine_key(NEW)).snapshot.row_count == 2
