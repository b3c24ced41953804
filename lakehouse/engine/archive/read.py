"""Reads a declared table from a user's own program, with or without its archive.

1. The table's log is read once. V is its newest version.
2. With the archive: the records are read, and the contents of the archive as of V are computed.
3. The rows of V and the rows of the archived files are combined by column name.

**Safety properties** (tests in `test_read.py`)
- Each row is read exactly once. V alone decides which operations are applied, because the commit
  that moves rows also contains the operation's number.
- A missing file is an error, whatever the session's settings are. Its rows are never omitted
  silently (`long/test_archive_readback.py`).
"""

import os
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.core.archive.contents import ArchivedPartition
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.settings import parse_settings
from lakehouse.engine.archive.records import archive_contents
from lakehouse.engine.archive.stored_columns import (
    StoredGroup,
    groups_of,
    refuse_unmapped,
    renamed_fields,
    stored_type,
)
from lakehouse.engine.declared_tables import declared_tables
from lakehouse.engine.lake import TableSession, open_lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.frames import literal_path, table_at
from lakehouse.engine.spark.open_session import connect
from lakehouse.engine.spark.statements import quote
from lakehouse.runtime.checkout import ROOT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

# A missing or damaged file is an error, even in a session that ignores such files. Timestamps in
# the names of partition folders are in UTC.
_READ_EXACTLY = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "timeZone": "UTC",
}


def read(
    table: Table | str, *, spark: "SparkSession | None" = None, with_archive: bool = False
) -> "DataFrame":
    """The rows of a declared table at its newest version.

    `table` is a key or a declaration. With `with_archive`, the rows of its archive are included.
    The LAKEHOUSE_ variables of the environment name the lake. `spark` is a session with Delta; the
    default is a session of the Spark that LAKEHOUSE_SPARK names. By default, that is the lake's
    server, which must be running.

    Raises:
        Refused: the table is not declared, or does not exist yet.
        Transient: no Spark server is running.
    """
    settings = parse_settings(os.environ, base=ROOT)
    declared = declared_tables(settings)
    if isinstance(table, str):
        if table not in declared:
            known = ", ".join(declared) or "none"
            raise Refused(f"read: table {table!r} is not declared. Use one of: {known}")
        table = declared[table]
    lake = open_lake(settings, tables=[*declared.values(), table])
    session = TableSession(lake=lake, spark=spark or connect(settings), table=table)
    return read_table(session, with_archive=with_archive)


def read_table(session: TableSession, *, with_archive: bool) -> "DataFrame":
    """Like `read`, in an open session."""
    facts = session.lake.facts(session.key)
    if facts is None:
        raise Refused(
            f"read of {session.key}: there is no table yet. Use lakehouse materialize {session.key}"
            " first"
        )
    rows = table_at(session.spark, facts.snapshot)
    if not with_archive:
        return rows
    partitions = archive_contents(session.lake, facts).partitions
    if not partitions:
        return rows
    return rows.unionByName(archived_rows(session, facts.snapshot, partitions))


def archived_rows(
    session: TableSession, snapshot: Snapshot, partitions: Iterable[ArchivedPartition]
) -> "DataFrame":
    """The rows of archived partitions, with the columns of the table at the snapshot.

    A column that a file lacks is null. The old names of renamed columns, and of renamed fields
    inside structs, come from column mapping. For columns, the declaration's `renamed` is also used.

    Raises:
        Refused: a column or field seems to have been renamed, but its old name is unknown.
    """
    schema = table_at(session.spark, snapshot).schema
    frames = list["DataFrame"]()
    for group in groups_of(session, snapshot, partitions):
        refuse_unmapped(session, schema, group)
        frames.append(_rows_of(session, schema, group))
    return reduce(lambda rows, others: rows.unionByName(others), frames)


def rows_by_file(
    session: TableSession, snapshot: Snapshot, partitions: Iterable[ArchivedPartition]
) -> Counter[str]:
    """The number of rows in archived files, by file name without folders."""
    schema = table_at(session.spark, snapshot).schema
    counts = Counter[str]()
    for group in groups_of(session, snapshot, partitions):
        files = _files(session, schema, group.files).select("_metadata.file_name")
        for name, count in files.groupBy("file_name").count().collect():
            counts[unquote(name)] += count
    return counts


def _files(session: TableSession, schema: "StructType", names: Iterable[str]) -> "DataFrame":
    """The rows in archived files.

    Spark gets the name of each file instead of folders, because a folder may also have files that
    are not yet or no longer part of the archive.
    """
    root = session.lake.settings.spark_root
    reader = session.spark.read.schema(schema).options(**_READ_EXACTLY)
    reader = reader.option("basePath", f"{root}/archive/{session.key}")
    return reader.parquet(*(literal_path(f"{root}/{name}") for name in names))


def _rows_of(session: TableSession, schema: "StructType", group: StoredGroup) -> "DataFrame":
    from pyspark.sql.types import StructField, StructType

    stored_types = {column: stored_type(schema, column, group) for column in group.names}
    fields = list[StructField]()
    for column, names in group.names.items():
        fields += [StructField(name, stored_types[column]) for name in names]
    rows = _files(session, StructType(fields), group.files)
    columns = list["Column"]()
    for column in schema.names:
        # A name that the file lacks reads as null.
        value = F.coalesce(*(F.col(quote(name)) for name in group.names[column]))
        # Renames nothing, but makes all parts nullable, as they are in `stored_types`.
        type_ = renamed_fields(schema[column].dataType, (column,), {})
        if stored_types[column] != type_:  # the cast of a struct matches fields by position
            value = value.cast(type_)
        columns.append(value.alias(column))
    return rows.select(*columns)
