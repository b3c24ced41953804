"""Files whose rows cannot be written are set aside alone, and each row of the others is there once."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors.exceptions.connect import (
    AnalysisException,
    PythonException,
    SparkException,
    UnknownException,
)
from pyspark.sql import SparkSession

from lakehouse import Append, Debezium, Landing, Merge, Overwrite, Table
from lakehouse.base.errors import Broken, Transient
from lakehouse.base.reasons import Reason
from lakehouse.delta.commits import ingest_app_id
from lakehouse.lake.lake import Lake, TableSession, open_lake
from lakehouse.land import run as load
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.quarantine import retry
from lakehouse.land.run import LandingLoad
from lakehouse.materialize.run import write_table
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.kills import killed_at
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_lake import land, rows_in, rows_of

SOURCE = Landing(
    prefix="landing/parts/", format="json", schema="id BIGINT, size INT", new_columns="refuse"
)
PARTS = Table(key="bronze/parts", source=SOURCE, write=Append())
HALVED = {"half": "IF(size % 2 = 1, raise_error('an odd size'), size / 2)"}
QUARANTINE = "quarantine/bronze/parts"


def part(id_: int, size: int) -> dict[str, int]:
    return {"id": id_, "size": size}


def put(lake: Lake, name: str, *lines: object) -> None:
    land(lake, name, lines, prefix=SOURCE.prefix)


def quarantined(lake: Lake) -> list[tuple[Any, ...]]:
    return [
        (name.rpartition("/")[2], line)
        for name, line in rows_in(lake, QUARANTINE, "source_file", "line")
    ]


# The steps of a load, at each of which a run dies.
DEATHS = (
    (load, "take_out_lines", "after"),
    (PlannedBatches, "replace", "before"),
    (PlannedBatches, "replace", "after"),
    (load, "quarantine", "after"),
)


@pytest.mark.parametrize("deaths", [(), pytest.param(DEATHS, marks=pytest.mark.long)])
def test_each_file_with_a_row_that_cannot_be_written_is_set_aside_whatever_dies(
    lake: Lake, spark: SparkSession, deaths: Sequence[tuple[Any, str, str]]
) -> None:
    halved = replace(PARTS, source=replace(SOURCE, derived=HALVED))
    put(lake, "a.json", part(1, 2), "nope")
    put(lake, "b.json", part(2, 2), "nope", part(3, 3))
    put(lake, "c.json", part(4, 5))
    put(lake, "d.json", part(5, 6), "nope")
    for owner, step, when in deaths:
        with killed_at(owner, step, when):
            write_table(lake, spark, halved)
    put(lake, "e.json", part(6, 8))
    write_table(lake, spark, halved)
    assert rows_in(lake, PARTS.key, "id", "half") == [(1, 1.0), (5, 3.0), (6, 4.0)]
    aside = [("b.json", None), ("c.json", None)]
    assert quarantined(lake) == [("a.json", 2), *aside, ("d.json", 2)]
    why = "its rows cannot be written: [USER_RAISED_EXCEPTION] an odd size"
    assert (f"{SOURCE.prefix}b.json", why) in rows_in(lake, QUARANTINE, "source_file", "reason")
    assert write_table(lake, spark, halved).reason is Reason.NOTHING_LANDED
    assert lake.store.list("_lakehouse/staged") == []


@pytest.mark.long
def test_a_file_set_aside_is_loaded_by_another_declaration(lake: Lake, spark: SparkSession) -> None:
    put(lake, "b.json", part(2, 2), "nope", part(3, 3))
    write_table(lake, spark, replace(PARTS, source=replace(SOURCE, derived=HALVED)))
    mended = replace(PARTS, source=replace(SOURCE, derived={"half": "size / 2"}))
    session = TableSession(lake=lake, spark=spark, table=mended)
    assert retry(session, [f"{SOURCE.prefix}b.json"], dry_run=False).files == 1
    write_table(lake, spark, mended)
    assert rows_in(lake, PARTS.key, "id") == [(2,), (3,)]
    assert quarantined(lake) == [("b.json", 2)]
    assert write_table(lake, spark, mended).reason is Reason.NOTHING_LANDED


VIOLATED = UnknownException(
    "CHECK constraint", errorClass="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", sql_state="23001"
)
WRAPPED = "org.apache.spark.SparkException\nCaused by: org.NumberError: [CAST_INVALID_INPUT] The value 'x'. SQLSTATE: 22018\n\tat Cast"


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (VIOLATED, "CHECK"),
        (
            SparkException(
                "Task failed", errorClass="TASK_WRITE_FAILED", server_stacktrace=WRAPPED
            ),
            "[CAST_INVALID_INPUT] The value 'x'",
        ),
        (
            PythonException(
                "\n[PYTHON_EXCEPTION] Traceback (most recent call last):\nZeroDivisionError: x\n SQLSTATE: 38000"
            ),
            "ZeroDiv",
        ),
        (
            UnknownException(
                "", errorClass="DELTA_CONCURRENT_APPEND.WITHOUT_HINT", sql_state="2D521"
            ),
            None,
        ),
        (
            SparkException(
                "[FAILED_READ_FILE.FILE_NOT_EXIST] x SQLSTATE: KD001",
                errorClass="FAILED_READ_FILE.FILE_NOT_EXIST",
            ),
            None,
        ),
        (AnalysisException("nope", errorClass="UNRESOLVED_ROUTINE", sql_state="42883"), None),
        (SparkException("java.lang.OutOfMemoryError"), None),
        (OSError("22"), None),
        (Broken("SQLSTATE: 22000"), None),
    ],
)
def test_only_what_is_about_values_sets_files_aside(error: Exception, problem: str | None) -> None:
    found = load.row_problem(error)
    assert found is problem if problem is None else (found or "").startswith(problem)


def test_a_batch_that_is_in_the_table_loses_no_file_whatever_its_write_says(tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path))
    file = LandedFile(name="a", size_bytes=1, modified_ms=1)
    batch = Batch(number=1, files=(file,), prefix=SOURCE.prefix)
    batches = PlannedBatches(lake.store, PARTS.key, prefix=SOURCE.prefix)
    batches.plan(batch)
    session = TableSession(lake=lake, spark=None, table=PARTS)  # type: ignore[arg-type]
    LogBuilder(lake.store, PARTS.key).create().append(
        [("x", 1, 1)], transaction=(ingest_app_id(PARTS.key), 1)
    )
    with pytest.raises(Transient, match="is in the table, but a statement"):
        LandingLoad(session, print)._make_smaller(batch, VIOLATED)
    assert batches.batch(1) == batch


@pytest.mark.long
def test_a_text_too_long_for_a_partition_stops_no_table(lake: Lake, spark: SparkSession) -> None:
    by_name = replace(
        PARTS,
        source=replace(SOURCE, schema="id BIGINT, name STRING"),
        write=Append(partition_by=("name",)),
    )
    put(lake, "1.json", {"id": 1, "name": "x" * 200})
    put(lake, "2.json", {"id": 2, "name": "x" * 300})
    [aside] = write_table(lake, spark, by_name).set_aside
    assert aside.name == "2.json"
    assert "perhaps because its value is too long: Mkdirs failed to create file:/" in aside.why
    assert (rows_in(lake, PARTS.key, "id"), quarantined(lake)) == ([(1,)], [("2.json", None)])


@pytest.mark.long
def test_an_overwrite_keeps_its_rows_where_those_of_the_newest_file_cannot_be_written(
    lake: Lake, spark: SparkSession
) -> None:
    whole = replace(PARTS, write=Overwrite(), source=replace(SOURCE, derived=HALVED))
    put(lake, "1.json", part(1, 2))
    put(lake, "2.json", part(2, 2), part(3, 3), "nope")
    with killed_at(PlannedBatches, "replace", "after"):
        write_table(lake, spark, whole)
    outcome = write_table(lake, spark, whole)
    assert rows_in(lake, PARTS.key, "id") == [(1,)]
    assert [aside.name for aside in outcome.set_aside] == ["2.json"]
    assert quarantined(lake) == [("2.json", None)]


@pytest.mark.long
def test_a_file_of_changes_set_aside_deletes_nothing(lake: Lake, spark: SparkSession) -> None:
    from lakehouse_tests.change_streams import debezium_event

    source = Landing(prefix=SOURCE.prefix, format="json", schema="id BIGINT", changes=Debezium())
    parts = replace(PARTS, source=source, write=Merge(keys=("id",)))
    put(lake, "1.json", debezium_event("c", 1, 1), debezium_event("c", 1, 2))
    write_table(lake, spark, parts)
    table = f"delta.`{lake.settings.table_uri(PARTS.key)}`"
    spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT known CHECK (id < 9)")
    put(lake, "2.json", debezium_event("d", 3, 1), debezium_event("c", 3, 9))
    put(lake, "3.json", debezium_event("u", 2, 1), debezium_event("c", 2, 3))
    outcome = write_table(lake, spark, parts)
    assert [aside.name for aside in outcome.set_aside] == ["2.json"]
    assert lake.store.list("_lakehouse/deleted_keys") == []
    assert rows_of(spark, lake, PARTS.key, "id", "_source_line") == [(1, 1), (2, 2), (3, 2)]
    spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT known")
    retry(TableSession(lake=lake, spark=spark, table=parts), [], dry_run=False)
    write_table(lake, spark, parts)
    assert rows_of(spark, lake, PARTS.key, "id") == [(2,), (3,), (9,)]
