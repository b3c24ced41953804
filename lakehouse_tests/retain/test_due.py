"""One list of what is due: every operation of every table, without Spark and without a change."""

from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse import Append, Compaction, Landing, Table, Ttl, Vacuum
from lakehouse.base.operation import Pause
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import pause_table
from lakehouse.watch.due import DueReading, plan_operations
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.retain.example_days import DAYS, ROWS, add_rows


def landed(key: str, schema: str = "id BIGINT", **more: object) -> Table:
    landing = Landing(prefix=f"landing/{key}/", format="json", schema=schema)
    return Table(key=key, source=landing, **{"write": Append(), **more})  # type: ignore[arg-type]


SMALL = landed("silver/small", compaction=Compaction(min_small_files=4))
OLD = landed(
    "silver/old",
    "id BIGINT, day DATE",
    write=Append(partition_by=("day",)),
    ttl=Ttl(column="day", days=30),
)
MOVED = landed(
    "bronze/moved",
    "id BIGINT, day DATE",
    write=Append(partition_by=("day",)),
    vacuum=Vacuum(mode="off"),
)
TABLES = (SMALL, OLD, MOVED, DAYS, landed("gold/never"))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Each table but the last has one operation that is due; the first has two."""
    lake = open_lake(own_settings(tmp_path / "home"))
    columns = {"id": "long"}
    small = LogBuilder(lake.store, SMALL.key).create(columns=columns)
    small.append([(f"small-{number}", 100, 1) for number in range(8)])
    small.delete(["small-0", "small-1"])
    old = LogBuilder(lake.store, OLD.key)
    old.create(columns={"id": "long", "day": "date"}, partition_by=["day"])
    old.append([("day=2013-01-01/a", 900, 9)])
    LogBuilder(lake.store, MOVED.key).create(columns=columns).append([("a", 700, 7)]).delete(["a"])
    add_rows(lake, ROWS)
    return lake


def read(lake: Lake, *tables: Table) -> DueReading:
    declared = {table.key: table for table in tables}
    return plan_operations(lake, declared, [*declared.values()])


def due(reading: DueReading) -> list[tuple[str, str, str]]:
    return [(each.operation, each.table, each.reason) for each in reading.operations if each.is_due]


def test_what_is_due_of_all_tables_is_one_ranked_list_and_nothing_changes(lake: Lake) -> None:
    before = sorted(Path(lake.settings.root).rglob("*"))
    reading = read(lake, *TABLES)
    assert reading.errors == ()
    assert due(reading) == [
        ("evolve", MOVED.key, "PARTITIONING_CHANGED"),  # no run writes the table before
        ("ttl", OLD.key, "PAST_THE_CUTOFF"),  # 900 bytes are saved
        ("compact", SMALL.key, "DUE"),  # nobody reads it
        ("archive", DAYS.key, "PAST_THE_CUTOFF"),  # as dear to keep there as here
        ("vacuum", SMALL.key, "VACUUM_DUE"),  # no vacuum ran, so the price is unknown
    ]
    idle = {(each.operation, each.table): each.reason for each in reading.operations[5:]}
    assert idle.pop(("compact", "gold/never")) == "NO_TABLE"
    assert idle.pop(("vacuum", OLD.key)) == "NOTHING_PAST"
    assert idle.pop(("evolve", SMALL.key)) == "UNCHANGED"
    assert ("vacuum", MOVED.key) not in idle
    assert sorted(Path(lake.settings.root).rglob("*")) == before


def test_a_pause_is_the_reason_of_upkeep_and_not_of_a_declaration(lake: Lake) -> None:
    for table in (OLD, MOVED):
        pause_table(lake, Pause(table=table.key, since_ms=1, why="an audit"))
    reading = read(lake, OLD, MOVED)
    assert due(reading) == [
        ("evolve", MOVED.key, "PARTITIONING_CHANGED"),
        ("ttl", OLD.key, "PAUSED"),
    ]
    assert reading.operations[1].sentence.endswith("an audit")


def test_an_operation_that_cannot_be_planned_is_an_error_and_hides_no_other(lake: Lake) -> None:
    LogBuilder(lake.store, "silver/kept").create(
        columns={"id": "long", "day": "date"}, properties={"delta.appendOnly": "true"}
    )
    kept = replace(OLD, key="silver/kept", write=Append())
    reading = read(lake, kept, SMALL)
    [failed] = reading.errors
    assert failed.table is kept and "delta.appendOnly forbids deletions" in str(failed.error)
    planned = {each.operation for each in reading.operations if each.table == kept.key}
    assert planned == {"compact", "vacuum", "evolve"}
    assert ("compact", SMALL.key, "DUE") in due(reading)
