"""Estimates how much Spark reads for a write, and derives session settings from that."""

from collections.abc import Mapping, Sequence

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import Batch
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.spark.temporary_confs import confs_for

# Rows (`None`: unknown) and bytes.
Size = tuple[float | None, int]
# A MERGE reads few columns of the table, and only files that the batch may touch: reading three
# rows takes as long as reading one whole row. Source: docs/internals/benchmarks/interpreted.json
_MERGED_INTO_ROWS = 3
# To compute the key range, the rows are stored in the server's memory and on its disk. Their size
# therefore has this limit, and the table must be several times as large.
_KEPT_BYTES = 32 * 1024 * 1024
_TIMES_AS_MANY = 4
# With fewer rows in the table, computing the range takes as long as it saves.
# Source: docs/internals/benchmarks/interpreted.json
_LEAST_ROWS = 10_000


def confs_to_load(table: Table, batch: Batch, facts: TableFacts | None) -> Mapping[str, str]:
    """Settings to parse and write a staged batch, or to merge its changes into the table."""
    read: list[Size] = [(0, sum(file.size_bytes for file in batch.files))]
    if facts is not None and table.landing.changes is not None:
        read.append(merged_into(facts.snapshot))
    return confs_to_read(read, records=batch.record_count or 0)


def are_few(size_bytes: int, snapshot: Snapshot) -> bool:
    """Whether rows of this size are few compared to the table, whose row count must be known."""
    rows = snapshot.row_count
    return (
        size_bytes <= _KEPT_BYTES
        and size_bytes * _TIMES_AS_MANY <= snapshot.size_bytes
        and rows is not None
        and rows >= _LEAST_ROWS
    )


def merged_into(snapshot: Snapshot) -> Size:
    """The size that a MERGE into a table reads, as whole rows that take as long to read."""
    rows, size_bytes = whole_table(snapshot)
    return None if rows is None else rows / _MERGED_INTO_ROWS, size_bytes


def whole_table(snapshot: Snapshot) -> Size:
    """The rows and bytes of a whole table."""
    return snapshot.row_count, snapshot.size_bytes


def confs_to_read(read: Sequence[Size], *, records: int = 0) -> Mapping[str, str]:
    """Settings for statements that read these amounts, and this number of landed records."""
    rows = [each for each, _ in read if each is not None]
    is_known = len(rows) == len(read)
    size_bytes = sum(read_bytes for _, read_bytes in read)
    return confs_for(rows=sum(rows) if is_known else None, size_bytes=size_bytes, records=records)
