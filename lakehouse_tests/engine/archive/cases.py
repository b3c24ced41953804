"""A small table with an archive, and where its rows are."""

from collections.abc import Iterable
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable, write_deltalake

from lakehouse import Append, Archive, Landing, Table
from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.engine.archive.records import archive_contents
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.lake import Lake, TableSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEY = "bronze/days"
# `newest_row`: nothing depends on the day on which a test runs.
DAYS = Table(
    key=KEY,
    source=Landing(prefix="landing/days/", format="json", schema="id BIGINT, day DATE"),
    write=Append(partition_by=("day",)),
    archive=Archive(older_than_days=3, clock="newest_row"),
)
Row = tuple[int, int]


def add_rows(lake: Lake, rows: Iterable[Row], **options: Any) -> None:
    """One commit of rows (id, day of January 2013), without Spark."""
    listed = [*rows]
    days = [date(2013, 1, 1) + timedelta(days=day - 1) for _, day in listed]
    data = pa.table({"id": pa.array([id_ for id_, _ in listed], pa.int64()), "day": days})
    address = lake.settings.table_uri(KEY)
    write_deltalake(address, data, mode="append", partition_by=["day"], **options)


def facts_now(lake: Lake) -> TableFacts:
    facts = lake.facts(KEY)
    assert facts is not None
    return facts


def contents_now(lake: Lake) -> ArchiveContents:
    return archive_contents(lake, facts_now(lake))


def table_rows(lake: Lake) -> list[Row]:
    """The rows in the table, sorted, as deltalake reads them."""
    found = DeltaTable(lake.settings.table_uri(KEY)).to_pyarrow_table(columns=["id", "day"])
    return _sorted(found)


def archive_rows(lake: Lake) -> list[Row]:
    """The rows in the archive, sorted, as pyarrow reads its files."""
    contents = contents_now(lake)
    names = [file.archived for each in contents.partitions for file in each.files]
    if not names:
        return []
    root = lake.settings.root
    schema = pa.schema({"id": pa.int64(), "day": pa.date32()})
    found = ds.dataset(
        [f"{root}/{name}" for name in names],
        schema=schema,
        partitioning=ds.partitioning(pa.schema({"day": pa.date32()}), flavor="hive"),
        partition_base_dir=f"{root}/archive/{KEY}",
    )
    return _sorted(found.to_table(columns=["id", "day"]))


def session_of(lake: Lake, spark: "SparkSession", table: Table = DAYS) -> TableSession:
    return TableSession(lake=lake, spark=spark, table=table)


def _sorted(found: pa.Table) -> list[Row]:
    return sorted((row["id"], row["day"].day) for row in found.to_pylist())
