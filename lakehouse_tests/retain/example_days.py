"""A small table with an archive, written by deltalake, and where its rows are."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any, NoReturn

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakehouse import Append, Archive, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.retain.run.archive import RetentionOutcome, archive_key, run_archive

KEY = "bronze/days"
# `newest_row`: nothing depends on the day on which a test runs.
DAYS = Table(
    key=KEY,
    source=Landing(prefix="landing/days/", format="json", schema="id BIGINT, day DATE"),
    write=Append(partition_by=("day",)),
    archive=Archive(older_than_days=3, clock="newest_row"),
)
Row = tuple[int, int]
ROWS = [(10 * day + place, day) for day in range(1, 6) for place in range(2)]


def add_rows(lake: Lake, rows: Iterable[Row], **options: Any) -> None:
    """One commit of rows (id, day of January 2013)."""
    listed = [*rows]
    days = [date(2013, 1, 1) + timedelta(days=day - 1) for _, day in listed]
    data = pa.table({"id": pa.array([id_ for id_, _ in listed], pa.int64()), "day": days})
    settings = {"mode": "append", "partition_by": ["day"], **options}
    write_deltalake(lake.settings.table_uri(KEY), data, **settings)


def no_spark() -> NoReturn:
    raise AssertionError("a Spark session was opened")


def archived(lake: Lake, table: Table = DAYS, **options: Any) -> RetentionOutcome:
    """A run of the archive, without Spark."""
    return run_archive(lake, table, no_spark, **options)


def table_rows(lake: Lake) -> list[Row]:
    """The rows in the table, sorted."""
    return _rows(DeltaTable(lake.settings.table_uri(KEY)))


def archive_rows(lake: Lake) -> list[Row]:
    """The rows in the archive at the version that the table names, sorted."""
    number = archive_version(lake)
    if number is None:
        return []
    return _rows(DeltaTable(lake.settings.table_uri(archive_key(KEY)), version=number))


def archive_files(lake: Lake) -> list[str]:
    """The data files in the archive's folder."""
    names = [file.name for file in lake.store.list(archive_key(KEY))]
    return [name for name in names if "_delta_log" not in name]


def archive_version(lake: Lake) -> int | None:
    """The version of the archive that the table names."""
    facts = lake.facts(KEY)
    return None if facts is None else facts.snapshot.transactions.get("lakehouse-archive")


def all_rows(lake: Lake) -> list[Row]:
    """What a reader of the table and its archive gets, sorted."""
    return sorted([*table_rows(lake), *archive_rows(lake)])


def _rows(table: DeltaTable) -> list[Row]:
    found = table.to_pyarrow_table(columns=["id", "day"]).to_pylist()
    return sorted((row["id"], row["day"].day) for row in found)
