"""Converts a batch's staged records to rows of the table and quarantine entries; writes both.

Modules for change data are imported where they are used, because most loads have no change data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from lakehouse.core.declaration.write_modes import Overwrite
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, files_of_spark, ingest_app_id
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn
from lakehouse.core.text import count_of
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.loaded_batches import WrittenBatch, check_loaded
from lakehouse.engine.ingest.parse_lines import (
    count_lines,
    failing_at_bad_records,
    no_lines,
    parse_records,
    staged_lines,
    table_rows,
)
from lakehouse.engine.ingest.quarantine.entries import quarantine, quarantine_has_files
from lakehouse.engine.ingest.undeclared_columns import without_rescued
from lakehouse.engine.ingest.work_size import confs_to_load
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark.delta_writes import Transaction
from lakehouse.engine.spark.frames import with_members_of
from lakehouse.engine.spark.temporary_confs import session_confs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakehouse.engine.ingest.changes.read import ChangeCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBatch:
    """The parsed records of a batch.

    `frame` is `None` for a batch without staged records. `added` are the columns for undeclared
    fields. `changes` has the counts of change data. With `is_uncounted`, all records count as good,
    and a write of the frame fails if one is bad.
    """

    frame: "DataFrame | None"
    added: Sequence[AddedColumn] = ()
    row_count: int = 0
    bad_count: int = 0
    rescued_count: int = 0
    changes: "ChangeCounts | None" = None
    is_uncounted: bool = False


def uncounted_batch(
    session: TableSession, batch: Batch, added: Sequence[AddedColumn], facts: TableFacts | None
) -> ParsedBatch | None:
    """The records of a batch, read only once, by the write; `None` if they must be counted first.

    Spark must read all files itself, and no row may have a value in the column `RESCUED`.

    Raises:
        Refused: as in `parse_batch`.
    """
    table = session.table
    is_plain = table.landing.changes is None and not isinstance(table.write, Overwrite)
    is_rescued = any(column.name == RESCUED for column in added)
    if batch.part_count or not files_of_spark(batch) or not is_plain or is_rescued:
        return None
    assert batch.record_count is not None
    snapshot = None if facts is None else facts.snapshot
    frame = without_rescued(
        failing_at_bad_records(_parsed(session, batch, added)), added, 0, snapshot
    )
    commit_rows.check_columns(_table_rows(session, frame), table, snapshot)
    return ParsedBatch(frame=frame, added=added, row_count=batch.record_count, is_uncounted=True)


def parse_batch(
    session: TableSession, batch: Batch, added: Sequence[AddedColumn], facts: TableFacts | None
) -> ParsedBatch:
    """Parses the staged records of a batch, and checks their count and columns.

    Raises:
        Broken: the count differs from the number of staged records.
        Refused: the existing table (`facts`) needs a change of columns that a write must not make.
    """
    assert batch.part_count is not None and batch.record_count is not None
    if not batch.part_count and not files_of_spark(batch):
        return ParsedBatch(frame=None)
    table = session.table
    snapshot = None if facts is None else facts.snapshot
    changes = None
    frame = _parsed(session, batch, added)
    with session_confs(session.spark, confs_to_load(table, batch, facts)):
        if table.landing.changes is None:
            row_count, bad_count, rescued_count = count_lines(frame)
        else:
            from lakehouse.engine.ingest.changes.columns import KEPT
            from lakehouse.engine.ingest.changes.fill_unsent_values import checked_changes
            from lakehouse.engine.ingest.changes.upserts_and_deletions import ChangeBatch

            if table.renamed:
                # `checked_changes` reads the table by the new names of its keys, so a rename that
                # is not yet applied is refused here.
                declared = _table_rows(session, frame).drop(RESCUED, KEPT)
                commit_rows.check_columns(declared, table, snapshot)
            load = ChangeBatch(session=session, batch=batch, facts=facts)
            frame, changes = checked_changes(load, frame)
            row_count = changes.rows
            bad_count = changes.bad
            rescued_count = changes.rescued
    if row_count + bad_count != batch.record_count:
        raise Broken(
            f"load of {table.key}: batch {batch.number} has "
            f"{count_of(batch.record_count, 'record')}, but Spark read "
            f"{count_of(row_count, 'row')} and {count_of(bad_count, 'bad record')}. Nothing was "
            f"written. Look at _lakehouse/staged/{table.key}"
        )
    frame = without_rescued(frame, added, rescued_count, snapshot)
    commit_rows.check_columns(_table_rows(session, frame), table, snapshot)
    return ParsedBatch(
        frame=frame,
        added=added,
        row_count=row_count,
        bad_count=bad_count,
        rescued_count=rescued_count,
        changes=changes,
    )


def no_rows(session: TableSession, added: Sequence[AddedColumn], facts: TableFacts) -> "DataFrame":
    """A frame without rows, with the columns that the next batch of the table will have."""
    lines = no_lines(session.spark)
    frame = without_rescued(_parsed_lines(session, lines, added), added, 0, facts.snapshot)
    return _table_rows(session, frame)


def write_batch(
    session: TableSession, batch: Batch, parsed: ParsedBatch, facts: TableFacts | None
) -> TableFacts | None:
    """Writes a batch, first to the quarantine, then to the table.

    Returns the table's new facts, or the given `facts` if the batch has no files for the table.
    """
    lake = session.lake
    spark = session.spark
    table = session.table
    quarantine(session, batch, parsed.frame if parsed.bad_count else None)
    if not batch.files:
        if batch.quarantined and not quarantine_has_files(lake, table.key, batch):
            raise Broken(
                f"load of {table.key}: all files of batch {batch.number} were refused, but the "
                f"quarantine has no entries for them. Look at quarantine/{table.key}/_delta_log"
            )
        return facts
    assert parsed.frame is not None
    rows = _table_rows(session, parsed.frame)
    facts = commit_rows.follow_declaration(lake, spark, table, rows, facts)
    frame = parsed.frame
    if facts is not None and not isinstance(table.write, Overwrite):
        # Members that are no longer declared are null.
        types = {column.name: column.type for column in facts.snapshot.columns}
        frame = with_members_of(frame, types)
        rows = _table_rows(session, frame)
    if parsed.changes is not None:
        from lakehouse.engine.ingest.changes.apply import apply_changes
        from lakehouse.engine.ingest.changes.upserts_and_deletions import ChangeBatch

        load = ChangeBatch(session=session, batch=batch, facts=facts)
        apply_changes(load, frame, parsed.changes)
    else:
        # Spark reads large files in splits, and each split is written as it is read.
        if not files_of_spark(batch) or commit_rows.partition_columns(table):
            landed_bytes = sum(file.size_bytes for file in batch.files)
            rows = commit_rows.arranged(rows, table, landed_bytes, parsed.row_count, facts)
        transaction = Transaction(app_id=ingest_app_id(table.key), version=batch.number)
        commit_rows.write_rows(lake, table, rows, transaction, facts=facts)
    after = lake.facts(table.key)
    written = WrittenBatch(
        table_key=table.key,
        number=batch.number,
        row_count=None if parsed.changes else parsed.row_count,
    )
    check_loaded(lake, written, before=facts, after=after)
    if files_of_spark(batch):
        from lakehouse.engine.ingest.spark_files import check_frozen

        check_frozen(session, batch)
    return after


def _parsed(session: TableSession, batch: Batch, added: Sequence[AddedColumn]) -> "DataFrame":
    frames = list["DataFrame"]()
    if batch.part_count:
        frames.append(staged_lines(session.lake, session.spark, session.key, batch))
    if files_of_spark(batch):
        # Imported here, because most batches have only small files.
        from lakehouse.engine.ingest.spark_files import spark_lines

        frames += spark_lines(session, batch)
    parsed = [_parsed_lines(session, lines, added) for lines in frames]
    return reduce(lambda union, more: union.unionByName(more), parsed)


def _parsed_lines(
    session: TableSession, lines: "DataFrame", added: Sequence[AddedColumn]
) -> "DataFrame":
    table = session.table
    if table.landing.changes is None:
        return parse_records(table.landing, lines, added, commit_rows.partition_columns(table))
    from lakehouse.engine.ingest.changes.read import read_changes

    return read_changes(table, lines, added)


def _table_rows(session: TableSession, frame: "DataFrame") -> "DataFrame":
    """The rows of parsed records, with the columns of the table."""
    if session.table.landing.changes is None:
        return table_rows(frame)
    from lakehouse.engine.ingest.changes.apply import changed_rows

    return changed_rows(frame, session.table)
