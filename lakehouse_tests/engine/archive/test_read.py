"""A program reads a table with its archive: every row once, under the table's columns."""

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakehouse
from lakehouse import Adopted, Table
from lakehouse.core.archive.restore_plan import RestoreRequest
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.evolution.rebuild import RebuildRequest
from lakehouse.core.reasons import Reason
from lakehouse.engine.archive.read import read_table
from lakehouse.engine.archive.restore import run_restore
from lakehouse.engine.evolution.rebuild import run_rebuild
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark.statements import path_table
from lakehouse_tests.engine.archive import by_hand
from lakehouse_tests.engine.example import (
    add_events,
    copies,
    event,
    events,
    facts_of,
    rows_in,
    states,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = events.key
DAY_1, DAY_2 = "2013-01-01", "2013-01-02"


def read_ids(lake: Lake, spark: "SparkSession", *, with_archive: bool = True) -> list[int]:
    """The ids of the rows that a program reads, sorted."""
    session = TableSession(lake=lake, spark=spark, table=events)
    rows = read_table(session, with_archive=with_archive)
    return sorted(row["id"] for row in rows.select("id").collect())


@pytest.mark.spark
def test_every_row_is_in_one_place_before_the_commit_of_a_move_and_after_it(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Late rows stay in the table. A DataFrame shows the version at which it was made."""
    add_events(lake, event(1, 5, "a"), event(2, 6, "b"), event(3, 5, "a", day=2))
    operation = by_hand.copied(lake, KEY, DAY_1)
    assert read_ids(lake, spark) == [1, 2, 3]
    session = TableSession(lake=lake, spark=spark, table=events)
    before = read_table(session, with_archive=True)
    by_hand.apply(lake, KEY, operation, [DAY_1])
    add_events(lake, event(4, 7, "late"))
    assert sorted(row["id"] for row in before.collect()) == [1, 2, 3]
    assert read_ids(lake, spark) == [1, 2, 3, 4]
    assert read_ids(lake, spark, with_archive=False) == [3, 4]
    rows = read_table(session, with_archive=True)
    assert rows.columns == ["id", "at", "state", "day"]
    assert sorted({str(row["day"]) for row in rows.collect()}) == [DAY_1, DAY_2]


@pytest.mark.spark
def test_a_table_that_is_too_far_behind_to_read_changes_reads_archived_rows_once(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Rows were added, archived, and their files deleted before a table downstream had read them."""
    add_events(lake, event(1, 5, "a"))
    for table in (states, copies):
        write_table(lake, spark, table)
    add_events(lake, event(2, 5, "b", day=2), event(3, 5, "c", day=3))
    removed = [file.path for file in facts_of(lake, KEY).snapshot.files]
    by_hand.archive(lake, KEY, DAY_1, DAY_2)
    live = {file.path for file in facts_of(lake, KEY).snapshot.files}
    lake.store.delete([f"{KEY}/{path}" for path in removed if path not in live])
    outcome = write_table(lake, spark, states)
    assert outcome.reason is Reason.INPUT_READ_WHOLE
    assert outcome.explanation.sentence.endswith(
        "its changes after version 0 are gone; with 2 rows of its archive"
    )
    assert rows_in(lake, states.key, "id", "state") == [(1, "a"), (2, "b"), (3, "c")]
    with pytest.raises(
        Broken, match=r"would duplicate rows.* use `lakehouse rebuild silver/copies`"
    ):
        write_table(lake, spark, copies)
    request = RebuildRequest(table=copies, source="inputs")
    run_rebuild(TableSession(lake=lake, spark=spark, table=copies), request)
    assert rows_in(lake, copies.key, "id", "state") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.spark
def test_columns_that_changed_since_are_found_or_null(lake: Lake, spark: "SparkSession") -> None:
    """Two columns that swapped their names keep their values, a wider one has its new type, and an added one is null. So are fields."""
    rows = pa.table(
        {
            "n": pa.array([1, 2], pa.int32()),
            "city": ["Rome", "Oslo"],
            "land": ["Italy", "Norway"],
            "size": [{"km": 1, "people": 2}, {"km": 3, "people": 4}],
            "day": [DAY_1, DAY_2],
        }
    )
    write_deltalake(lake.settings.table_uri(KEY), rows, partition_by=["day"])
    by_hand.archive(lake, KEY, DAY_1)
    table = path_table(lake.settings.table_uri(KEY))
    for change in (
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')",
        "RENAME COLUMN city TO town",
        "RENAME COLUMN land TO city",
        "RENAME COLUMN town TO land",
        "ALTER COLUMN n TYPE BIGINT",
        "ADD COLUMN note STRING",
        "RENAME COLUMN size.km TO miles",
        "DROP COLUMN size.people",
        "ADD COLUMN size.people BIGINT",
    ):
        spark.sql(f"ALTER TABLE {table} {change}")
    session = TableSession(lake=lake, spark=spark, table=events)
    found = read_table(session, with_archive=True)
    assert [field.simpleString() for field in found.schema] == [
        "n:bigint",
        "land:string",
        "city:string",
        "size:struct<miles:bigint,people:bigint>",
        "day:string",
        "note:string",
    ]
    assert sorted(map(tuple, found.collect())) == [
        (1, "Rome", "Italy", (1, None), DAY_1, None),
        (2, "Oslo", "Norway", (3, None), DAY_2, None),
    ]


@pytest.mark.spark
def test_values_of_a_column_that_was_renamed_unsaid_are_not_read_as_nulls(
    lake: Lake, spark: "SparkSession"
) -> None:
    """Another program wrote all rows under another name, so the log has no trace of the earlier one."""
    place = lake.settings.table_uri(KEY)
    rows = pa.table({"city": ["Rome", "Oslo"], "day": [DAY_1, DAY_2]})
    write_deltalake(place, rows, partition_by=["day"])
    by_hand.archive(lake, KEY, DAY_1)
    renamed = rows.slice(1).rename_columns(["town", "day"])
    write_deltalake(place, renamed, mode="overwrite", schema_mode="overwrite", partition_by=["day"])
    adopted = Table(key=KEY, write=Adopted(uri=place))
    for table, way_out in (
        (events, r"Use renamed={'city': …} in the declaration; if it was dropped, add it to"),
        (adopted, r"Add 'city' to the table again, as an empty column"),
    ):
        session = TableSession(lake=lake, spark=spark, table=table)
        with pytest.raises(Refused, match=f"and lacks 'town', so .* {way_out}"):
            read_table(session, with_archive=True)
        with pytest.raises(Refused, match="and lacks 'town'"):
            run_restore(session, RestoreRequest())
    towns = replace(events.landing, schema="town STRING, day STRING", derived={}, required=())
    declared = replace(events, source=towns, renamed={"city": "town"})
    session = TableSession(lake=lake, spark=spark, table=declared)
    found = read_table(session, with_archive=True).collect()
    assert sorted(row["town"] for row in found) == ["Oslo", "Rome"]


@pytest.mark.spark
def test_values_of_a_field_that_was_renamed_unsaid_are_not_read_as_nulls(
    lake: Lake, spark: "SparkSession"
) -> None:
    """As above, inside a struct. The field is read once the table has it again."""
    place = lake.settings.table_uri(KEY)
    session = TableSession(lake=lake, spark=spark, table=events)

    def write(*fields: dict[str, int]) -> None:
        rows = pa.table({"at": pa.array(fields), "day": [DAY_1, DAY_2][: len(fields)]})
        write_deltalake(
            place, rows, mode="overwrite", schema_mode="overwrite", partition_by=["day"]
        )

    write({"x": 1}, {"x": 2})
    by_hand.archive(lake, KEY, DAY_1)
    write({"y": 5})
    with pytest.raises(Refused, match=r"a field 'at\.x', .* lacks 'at\.y', .*Add 'at\.x' to the"):
        read_table(session, with_archive=True)
    write({"y": 5, "x": 6})
    found = read_table(session, with_archive=True).collect()
    assert sorted(map(str, (row["at"] for row in found))) == ["Row(y=5, x=6)", "Row(y=None, x=1)"]


@pytest.mark.spark
def test_a_program_reads_by_key_with_the_settings_of_its_environment(
    lake: Lake, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    add_events(lake, event(1, 5, "a"))
    for name, value in lake.settings.as_environ().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LAKEHOUSE_TABLES", "lakehouse_tests.engine.example")
    assert lakehouse.read("bronze/events", spark=spark).count() == 1
    assert lakehouse.read(events, spark=spark, with_archive=True).count() == 1
    with pytest.raises(Refused, match=r"'bronze/none' is not declared\. Use one of: bronze/events"):
        lakehouse.read("bronze/none", spark=spark)
    with pytest.raises(Refused, match="Use lakehouse materialize silver/states first"):
        lakehouse.read("silver/states", spark=spark)
