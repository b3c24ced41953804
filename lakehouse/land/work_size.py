"""Estimates how much Spark reads for a write, and derives session settings from that."""

from collections.abc import Mapping, Sequence

from lakehouse.declare.table import Table
from lakehouse.delta.log import TableFacts
from lakehouse.delta.snapshot import Snapshot
from lakehouse.land.plan.batches import Batch, files_of_spark
from lakehouse.land.undeclared_columns import JSON_CONFS
from lakehouse.spark.temporary_confs import confs_for

# The number of rows (`None` if unknown) and the number of bytes.
Size = tuple[float | None, int]
# A MERGE reads this many rows of the table in the time that it takes to read one whole row, because
# it reads few columns and only files that the batch may touch.
# Source: docs/internals/benchmarks/interpreted.json
_MERGED_INTO_ROWS = 3
# The most bytes of rows whose key range is computed, because the server stores these rows in its
# memory and on its disk.
_STORED_BYTES = 32 * 1024 * 1024
# The key range is computed only if the table is at least this many times as large as the rows.
_LEAST_RATIO = 4
# With fewer rows in the table, computing the range takes as long as it saves.
# Source: docs/internals/benchmarks/interpreted.json
_LEAST_ROWS = 10_000
# Java interprets a method of more bytes, and never compiles it. Above this limit, Spark generates
# several methods, since the expressions that judge a record are many.
# Source: OpenJDK, DontCompileHugeMethods; Spark 4.2.0, SQLConf.WHOLESTAGE_HUGE_METHOD_LIMIT
_HUGE_METHODS = {"spark.sql.codegen.hugeMethodLimit": "8000"}


def confs_to_load(table: Table, batch: Batch, facts: TableFacts | None) -> Mapping[str, str]:
    """Settings to parse and write a staged batch, or to merge its changes into the table."""
    confs = dict(JSON_CONFS)
    if files_of_spark(batch):
        # Imported here, because most batches have only small files.
        from lakehouse.land.spark.text import text_confs

        confs |= _HUGE_METHODS
        confs |= text_confs() if table.landing.format != "parquet" else {}
    # No rows for the files, because their records are counted in `records`.
    read: list[Size] = [(0, sum(file.size_bytes for file in batch.files))]
    if facts is not None and table.landing.changes is not None:
        read.append(merged_into(facts.snapshot))
    return {**confs_to_read(read, records=batch.record_count or 0), **confs}


def are_few(size_bytes: int, snapshot: Snapshot) -> bool:
    """Whether rows of this size are so few that a MERGE should compute their key range first.

    False if the table is small, or its row count is unknown.
    """
    rows = snapshot.row_count
    return (
        size_bytes <= _STORED_BYTES
        and size_bytes * _LEAST_RATIO <= snapshot.size_bytes
        and rows is not None
        and rows >= _LEAST_ROWS
    )


def merged_into(snapshot: Snapshot) -> Size:
    """What a MERGE reads of a table: whole rows that take as long to read, and the table's size."""
    rows, size_bytes = whole_table(snapshot)
    return None if rows is None else rows / _MERGED_INTO_ROWS, size_bytes


def whole_table(snapshot: Snapshot) -> Size:
    """The rows and bytes of a whole table."""
    return snapshot.row_count, snapshot.size_bytes


def confs_to_read(read: Sequence[Size], *, records: int = 0) -> Mapping[str, str]:
    """Settings for statements that read these amounts, and this number of landed records.

    If the number of rows of one amount is unknown, so is their sum.
    """
    known_rows = [rows for rows, _ in read if rows is not None]
    total_rows = sum(known_rows) if len(known_rows) == len(read) else None
    size_bytes = sum(read_bytes for _, read_bytes in read)
    return confs_for(rows=total_rows, size_bytes=size_bytes, records=records)
