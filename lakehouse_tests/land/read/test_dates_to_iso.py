"""A date of a landed Parquet or Avro file is the day that its writer meant, or its row has a problem."""

import json
from collections.abc import Mapping
from datetime import date
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Landing
from lakehouse.land.read.contents import read_rows
from lakehouse.land.read.parquet_and_avro import Calendars, file_calendars

SPARK_2 = {"org.apache.spark.version": "2.4.8"}
SPARK_3 = {"org.apache.spark.version": "3.5.1"}
LEGACY = {**SPARK_3, "org.apache.spark.legacyDateTime": "", "org.apache.spark.legacyINT96": ""}
EPOCH = date(1970, 1, 1).toordinal()
# As the Gregorian and the Julian calendar count them; the former is the latter from 1582-10-15 on.
GREGORIAN = [date(1, 1, 1).toordinal() - EPOCH, date(1582, 10, 4).toordinal() - EPOCH, 19_723]
JULIAN = [-719_164, date(1582, 10, 14).toordinal() - EPOCH, 19_723]
MEANT = ["0001-01-01", "1582-10-04", "2024-01-01"]


def parquet(
    days: list[int], metadata: Mapping[str, str], kind: pa.DataType | None = None, **options: Any
) -> bytes:
    column = pa.array(days, pa.int32()).cast(pa.date32())
    if kind is not None:
        column = pa.array([day * 86_400_000_000 for day in days], pa.timestamp("us")).cast(kind)
    file = BytesIO()
    table = pa.table({"id": range(len(days)), "x": column})
    pq.write_table(table.replace_schema_metadata(metadata), file, **options)
    return file.getvalue()


def avro(counts: list[int], metadata: Mapping[str, str], type_: str, logical: str) -> bytes:
    """A file of counts as they stand, also of those that Python has no date for."""
    fields = [{"name": "x", "type": ["null", {"type": type_, "logicalType": logical}]}]
    schema = {"type": "record", "name": "row", "fields": fields}
    file = BytesIO()
    fastavro.writer(file, schema, [{"x": count} for count in counts], metadata={**metadata})
    return file.getvalue()


def read(data: bytes, format: str = "parquet") -> list[tuple[Any, str | None]]:
    """Each row's value, and its problem."""
    landing = Landing(prefix="landing/x/", format=format, schema="id BIGINT, x DATE")
    records = read_rows(data, landing, max_content_bytes=10**6)
    return [(json.loads(record.content)["x"], record.problem) for record in records]


def problems(found: list[tuple[Any, str | None]]) -> list[bool]:
    """Which rows have one."""
    return [problem is not None for _, problem in found]


@pytest.mark.parametrize("metadata", [SPARK_3, {}], ids=["Spark 3", "another library"])
def test_a_date_of_parquet_is_the_day_that_its_writer_meant(metadata: dict[str, str]) -> None:
    assert read(parquet(GREGORIAN, metadata)) == [(day, None) for day in MEANT]
    milliseconds = BytesIO()
    table = pa.table({"x": pa.array(GREGORIAN, pa.int32()).cast(pa.date32()).cast(pa.date64())})
    pq.write_table(table.replace_schema_metadata(metadata), milliseconds)
    assert read(milliseconds.getvalue()) == [(day, None) for day in MEANT]


@pytest.mark.parametrize("metadata", [SPARK_2, LEGACY], ids=["Spark 2", "Spark 3, legacy"])
def test_an_old_date_of_the_julian_calendar_is_a_problem_of_its_row(
    metadata: dict[str, str],
) -> None:
    found = read(parquet(JULIAN, metadata))
    assert problems(found) == [True, True, False]
    for _, problem in found[:2]:  # the first day of all is in the year 0 of the other calendar
        assert "does not show that it uses the Gregorian calendar" in (problem or "")


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), None])
def test_an_old_time_is_itself_only_in_a_file_of_the_proleptic_calendar(
    kind: pa.DataType | None,
) -> None:
    """`None` is INT96, for which Spark 3.0 still uses the hybrid calendar."""
    options = {"use_deprecated_int96_timestamps": True} if kind is None else {}
    stored = kind or pa.timestamp("us")
    for metadata in ({}, SPARK_3):
        found = read(parquet(GREGORIAN, metadata, stored, **options))
        assert [(value[:10], problem) for value, problem in found] == [(day, None) for day in MEANT]
    for metadata in (SPARK_2, LEGACY):
        found = read(parquet(JULIAN, metadata, stored, **options))
        assert (problems(found), found[2][0][:10]) == ([True, True, False], MEANT[2])
    version = {"org.apache.spark.version": "3.0.3"}
    found = read(parquet(GREGORIAN, version, stored, **options))
    assert problems(found) == [kind is None, kind is None, False]


def test_dates_inside_of_nested_values_are_read_the_same_way() -> None:
    day, far = date(1, 1, 1), date(9999, 12, 31)
    kind = pa.struct([("a", pa.list_(pa.date32())), ("b", pa.map_(pa.string(), pa.date32()))])
    inner = pa.array([{"a": [far, None], "b": [("k", None)]}, None], kind)
    lists = pa.array([[day, None], None], pa.list_(pa.date32()))
    table = pa.table({"s": inner, "x": lists}).replace_schema_metadata(SPARK_3)
    file = BytesIO()
    pq.write_table(table, file)
    landing = Landing(prefix="landing/x/", format="parquet", schema="x ARRAY<DATE>")
    first, second = read_rows(file.getvalue(), landing, max_content_bytes=10**6)
    assert json.loads(first.content) == {
        "s": {"a": ["9999-12-31", None], "b": {"k": None}},
        "x": ["0001-01-01", None],
    }
    assert json.loads(second.content) == {"s": None, "x": None}


@pytest.mark.parametrize(("format", "read_as"), [("parquet", SPARK_3), ("avro", SPARK_3)])
def test_a_year_that_no_table_may_hold_is_the_problem_of_its_row_alone(
    format: str, read_as: dict[str, str]
) -> None:
    days = [GREGORIAN[0] - 1, date.max.toordinal() - EPOCH + 1, 0]
    data = parquet(days, read_as) if format == "parquet" else avro(days, read_as, "int", "date")
    assert read(data, format) == [
        ("0000-12-31", "x: the date 0000-12-31 is not in the years 1 to 9999"),
        ("10000-01-01", "x: the date 10000-01-01 is not in the years 1 to 9999"),
        ("1970-01-01", None),
    ]


def test_avro_shows_its_calendar_by_spark_s_or_hive_s_key_alone() -> None:
    for metadata in (SPARK_3, {"writer.date.proleptic": "true"}):
        found = read(avro(GREGORIAN, metadata, "int", "date"), "avro")
        assert found == [(day, None) for day in MEANT]
    for metadata in ({}, SPARK_2, LEGACY, {"writer.date.proleptic": "false"}):
        found = read(avro(GREGORIAN, metadata, "int", "date"), "avro")
        assert problems(found) == [True, True, False]
    for unit, per_day in (("millis", 86_400_000), ("micros", 86_400_000_000)):
        counts = [day * per_day for day in JULIAN]
        for metadata in ({}, SPARK_2):
            found = read(avro(counts, metadata, "long", f"timestamp-{unit}"), "avro")
            assert problems(found) == [True, True, False]
        far = [2**62]
        [(_, problem)] = read(avro(far, SPARK_3, "long", f"timestamp-{unit}"), "avro")
        assert problem is not None and problem.endswith("is not in the years 1 to 9999")


# The metadata, the library, and whether dates and INT96 times are known to be Gregorian.
CALENDARS: dict[str, tuple[dict[str, str], str | None, bool, bool]] = {
    "Spark 2.4.8": (SPARK_2, "parquet-mr version 1.10.1", False, False),
    "Spark 3.0": ({"org.apache.spark.version": "3.0.3"}, None, True, False),
    "Spark 4": ({"org.apache.spark.version": "4.2.0"}, None, True, True),
    "an early Spark 2": (
        {"org.apache.spark.sql.parquet.row.metadata": "{}"},
        "parquet-mr version 1.8.1",
        False,
        False,
    ),
    "Hive 2": ({}, "parquet-mr version 1.8.1", False, False),
    "Hive 4": ({"writer.date.proleptic": "true"}, "parquet-mr version", True, False),
    "Trino": ({}, "parquet-mr compatible Trino version 435", True, True),
    "DuckDB": ({}, "DuckDB version v1.1.3", True, True),
    "an unknown library": ({}, None, False, False),
}


@pytest.mark.parametrize("name", CALENDARS)
def test_a_files_metadata_shows_its_calendars(name: str) -> None:
    metadata, created_by, dates, int96 = CALENDARS[name]
    expected = Calendars(are_gregorian=dates, are_int96_gregorian=int96)
    assert file_calendars(metadata, created_by) == expected
