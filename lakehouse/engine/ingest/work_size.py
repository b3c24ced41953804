"""The amount that a batch or an increment makes Spark read, and the settings for so much."""

from collections.abc import Mapping, Sequence

from lakehouse.core.declaration.table import Merge, Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.increments import ReadAll, ReadChanges
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.spark.session_settings import confs_for
from lakehouse.engine.store import Store

type_of_size = tuple[float | None, int]
# A MERGE reads of its table the files that the batch may touch, and few columns of them: three rows take as long as one that is read whole.
# Source: docs/internals/benchmarks/interpreted.json
_MERGED_INTO_ROWS = 3
# So many bytes are read of the first input at most: what the transform makes of them is kept in the server's memory, and on its disk.
_KEPT_BYTES, _TIMES_AS_MANY = 32 * 1024 * 1024, 4
# With fewer rows in the table, the look takes as long as it saves. Source: docs/internals/benchmarks/interpreted.json
_LEAST_ROWS = 10_000


def confs_to_load(table: Table, batch: Batch, facts: TableFacts | None) -> Mapping[str, str]:
    """Settings to parse and write a staged batch; changes are merged into the table, which is read for it."""
    merged = [] if facts is None or table.landing.changes is None else [merged_into(facts.snapshot)]
    return _confs(
        [(0, sum(file.size_bytes for file in batch.files)), *merged],
        records=batch.record_count or 0,
    )


def confs_to_derive(
    store: Store,
    table: Table,
    inputs: Mapping[str, TableFacts],
    target: TableFacts | None,
    increment: ReadAll | ReadChanges | None,
) -> Mapping[str, str]:
    """Settings to transform and write what a table reads of its inputs: of the first by `increment` (`None`: whole), of the others all."""
    first, *others = inputs.values()
    read = [_whole(facts.snapshot) for facts in others]
    read.append(
        _changed(store, first, increment)
        if isinstance(increment, ReadChanges)
        else _whole(first.snapshot)
    )
    if target is not None and isinstance(table.write, Merge):
        read.append(merged_into(target.snapshot))
    return _confs(read)


def merges_few(
    store: Store, first: TableFacts, target: TableFacts, increment: ReadAll | ReadChanges
) -> bool:
    """Whether a MERGE brings a table so few rows beside those that it has that their range is worth a look at them first."""
    return isinstance(increment, ReadChanges) and are_few(
        _changed(store, first, increment)[1], target.snapshot
    )


def are_few(size_bytes: int, there: Snapshot) -> bool:
    """Whether rows of so many bytes are few beside those of a table whose files tell what they hold."""
    rows = there.row_count
    return (
        size_bytes <= _KEPT_BYTES
        and size_bytes * _TIMES_AS_MANY <= there.size_bytes
        and rows is not None
        and rows >= _LEAST_ROWS
    )


def merged_into(snapshot: Snapshot) -> type_of_size:
    """Rows and bytes of a table that a MERGE writes, its rows as many as would take as long if they were read whole."""
    rows, size_bytes = _whole(snapshot)
    return None if rows is None else rows / _MERGED_INTO_ROWS, size_bytes


def _whole(snapshot: Snapshot) -> type_of_size:
    return snapshot.row_count, snapshot.size_bytes


def _changed(store: Store, facts: TableFacts, increment: ReadChanges) -> type_of_size:
    """Rows and bytes of the files that the commits of the increment added; their rows are taken to be as long as the table's."""
    commits = history_since(store, facts.history, increment.first - 1).commits
    added, (rows, size_bytes) = (
        sum(each.added_bytes for each in commits if each.changed_data),
        _whole(facts.snapshot),
    )
    if rows is None or added >= size_bytes:
        return rows, max(added, size_bytes)
    return rows * added / size_bytes, added


def _confs(read: Sequence[type_of_size], *, records: int = 0) -> Mapping[str, str]:
    rows = [each for each, _ in read if each is not None]
    size_bytes = sum(its_bytes for _, its_bytes in read)
    return confs_for(
        rows=sum(rows) if len(rows) == len(read) else None, size_bytes=size_bytes, records=records
    )
