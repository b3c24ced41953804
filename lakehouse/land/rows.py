"""Converts a batch's staged records to rows of the table and quarantine entries, and writes both.

A write may fail because of one row although every record was parsed: an expression of the
declaration raises an error, or the row violates a constraint or an invariant of the table. It may
also find damage in a column that was not read when the rows were counted. Spark names such a file.
A file is blamed only if its rows alone could not be written, for an error about values, or if Spark
could not read it (`test_unwritable_rows.py`).

Modules for change data are imported where they are used, because most loads have no change data.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from lakehouse.base.errors import Broken
from lakehouse.base.text import count_of
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Overwrite
from lakehouse.delta.commits import ingest_app_id
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import TableSession
from lakehouse.land.ledger import (
    check_loaded,
    quarantine_has_files,
)
from lakehouse.land.parse_lines import (
    JSON_CONFS,
    REASON,
    count_lines,
    failing_at_bad_records,
    no_lines,
    parse_records,
    staged_lines,
    table_rows,
    without_rescued,
)
from lakehouse.land.plan.batches import Batch, LandedFile, files_of_spark
from lakehouse.land.plan.records import RESCUED
from lakehouse.land.quarantine import quarantine
from lakehouse.land.spark.files import check_frozen, damaged_files, spark_lines, staged_csv
from lakehouse.land.spark.parquet import staged_rows
from lakehouse.land.spark.text import text_confs
from lakehouse.land.staging import part_names
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.delta_writes import Transaction
from lakehouse.spark.errors import causes_of
from lakehouse.spark.frames import evaluated_once, with_members_of
from lakehouse.spark.temporary_confs import Size, confs_to_read, merged_into, session_confs
from lakehouse.write import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakehouse.cdc.read import ChangeCounts

# The first characters of SQL states of errors about values: data exceptions, violated constraints,
# failed functions (also in Python), `raise_error`, and text that is too long. Source: Spark 4.2.0,
# error-conditions.json and error-classes.json; Delta Lake 4.4.0, delta-error-classes.json
_STATES_OF_VALUES = ("22", "23", "38", "39", "P0", "54006")
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# The error if a partition value is too long for the name of a folder on disk.
# Source: Hadoop 3.5, RawLocalFileSystem.create
_NO_FOLDER = re.compile(r"Mkdirs failed to create \S+")
# The conditions of errors that only wrap their cause.
_WRAPPERS = ("", "TASK_WRITE_FAILED")
_SHOWN_CHARACTERS = 300
# Java interprets a method of more bytes, and never compiles it. Above this limit, Spark generates
# several methods, since the expressions that judge a record are many.
# Source: OpenJDK, DontCompileHugeMethods; Spark 4.2.0, SQLConf.WHOLESTAGE_HUGE_METHOD_LIMIT
_HUGE_METHODS = {"spark.sql.codegen.hugeMethodLimit": "8000"}


def blamed_files(session: TableSession, batch: Batch, error: Exception) -> dict[str, str]:
    """The files because of which a batch failed with `error`, each with its problem.

    Empty if it is unknown which of several files has the rows that cannot be written.

    Raises:
        Exception: `error` itself, if it is neither about values nor about a damaged file.
    """
    problem = row_problem(error)
    if problem is not None and len(batch.files) > 1:
        return {}
    if problem is not None and batch.files:
        return {batch.files[0].name: f"its rows cannot be written: {problem}"}
    damaged = damaged_files(session.lake, batch, session.table.landing, error)
    if not damaged:
        raise error
    return damaged


def row_problem(error: BaseException) -> str | None:
    """The problem with a row's values; `None` if the write failed for another reason."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    # The first attribute exists over Connect, the second with a driver in this process.
    trace = f"{getattr(error, '_stacktrace', '')}{getattr(error, '_stackTrace', '')}"
    no_folder = _NO_FOLDER.search(f"{error}{trace}")
    if no_folder is not None:
        finding = "a partition's folder cannot be created, perhaps because its value is too long"
        return f"{finding}: {no_folder[0]}"[:_SHOWN_CHARACTERS]
    states = {error.getSqlState() or "", *_STATE.findall(f"{error}{trace}")}
    if not any(state.startswith(_STATES_OF_VALUES) for state in states):
        return None
    messages = [cause.message for cause in causes_of(error) if cause.condition not in _WRAPPERS]
    # The last message is that of the innermost cause.
    message = (messages or [str(error)])[-1].partition("\n\nJVM stacktrace:")[0]
    if "Traceback (most recent call last)" in message:
        # The last line of a Python traceback names the error.
        lines = message.splitlines()
        message = [line for line in lines if line.strip() and "SQLSTATE" not in line][-1]
    return " ".join(_STATE.sub("", message).split())[:_SHOWN_CHARACTERS]


def confs_to_load(table: Table, batch: Batch, facts: TableFacts | None) -> Mapping[str, str]:
    """Settings to parse and write a staged batch, or to merge its changes into the table."""
    confs = dict(JSON_CONFS)
    if files_of_spark(batch):
        confs |= _HUGE_METHODS
        confs |= text_confs() if table.landing.format != "parquet" else {}
    # No rows for the files, because their records are counted in `records`.
    read: list[Size] = [(0, sum(file.size_bytes for file in batch.files))]
    if facts is not None and table.landing.changes is not None:
        read.append(merged_into(facts.snapshot))
    return {**confs_to_read(read, records=batch.record_count or 0), **confs}


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedBatch:
    """The parsed records of a batch.

    `frame` is `None` for a batch without staged records. `added` are the columns for undeclared
    fields. `changes` has the counts of change data. With `is_uncounted`, all records count as good,
    and a write of the frame fails if one is bad.
    """

    frame: "DataFrame | None"
    added: Sequence[str] = ()
    row_count: int = 0
    bad_count: int = 0
    rescued_count: int = 0
    changes: "ChangeCounts | None" = None
    is_uncounted: bool = False


def uncounted_batch(
    session: TableSession,
    batch: Batch,
    added: Sequence[str],
    facts: TableFacts | None,
    plain: Collection[str],
) -> ParsedBatch | None:
    """The records of a batch, read only once, by the write; `None` if they must be counted first.

    All lines of the files named `plain` are plain.

    Spark must read all files itself, and no row may have a value in the column `RESCUED`. Change
    data must be a full load (`cdc.run.full_load_rows`).

    Raises:
        Refused: as in `parse_batch`.
    """
    table = session.table
    is_overwrite = isinstance(table.write, Overwrite)
    if batch.part_count or not files_of_spark(batch) or is_overwrite or RESCUED in added:
        return None
    assert batch.record_count is not None
    snapshot = None if facts is None else facts.snapshot
    lines = parsed_records(session, batch, added, plain)
    if table.landing.changes is not None:
        from lakehouse.cdc.read import ChangeBatch
        from lakehouse.cdc.run import full_load_rows

        load = ChangeBatch(session=session, batch=batch, facts=facts)
        with session_confs(session.spark, confs_to_load(table, batch, facts)):
            rows = full_load_rows(load, lines)
        if rows is None:
            return None
        lines = rows
    frame = without_rescued(failing_at_bad_records(lines), added, 0, snapshot)
    commit_rows.check_columns(_table_rows(session, frame), table, snapshot)
    return ParsedBatch(frame=frame, added=added, row_count=batch.record_count, is_uncounted=True)


def parse_batch(
    session: TableSession, batch: Batch, added: Sequence[str], facts: TableFacts | None
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
    frame = parsed_records(session, batch, added)
    # Several conditions refer to it.
    frame = frame.withColumn(REASON, evaluated_once(F.col(REASON)))
    with session_confs(session.spark, confs_to_load(table, batch, facts)):
        if table.landing.changes is None:
            row_count, bad_count, rescued_count = count_lines(frame)
        else:
            frame, changes = _counted_changes(session, batch, frame, facts)
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


def _counted_changes(
    session: TableSession, batch: Batch, frame: "DataFrame", facts: TableFacts | None
) -> "tuple[DataFrame, ChangeCounts]":
    """The parsed changes of a batch, checked against the table, and their counts."""
    from lakehouse.cdc.fill_unsent_values import checked_changes
    from lakehouse.cdc.read import KEPT, ChangeBatch

    table = session.table
    if table.renamed:
        # `checked_changes` reads the table by the new names of its keys, so a rename that is not
        # yet applied is refused here.
        declared = _table_rows(session, frame).drop(RESCUED, KEPT)
        commit_rows.check_columns(declared, table, None if facts is None else facts.snapshot)
    return checked_changes(ChangeBatch(session=session, batch=batch, facts=facts), frame)


def no_rows(session: TableSession, added: Sequence[str], facts: TableFacts) -> "DataFrame":
    """A frame without rows, with the columns that the next batch of the table will have."""
    lines = no_lines(session.spark)
    frame = without_rescued(_parsed_lines(session, lines, added, ()), added, 0, facts.snapshot)
    return _table_rows(session, frame)


def write_batch(
    session: TableSession, batch: Batch, parsed: ParsedBatch, facts: TableFacts | None
) -> TableFacts | None:
    """Writes a batch, first to the quarantine, then to the table.

    Returns the table's new facts, or the given `facts` if the batch has no files for the table.
    """
    lake = session.lake
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
    facts = commit_rows.follow_declaration(session, rows, facts)
    frame = parsed.frame
    if facts is not None and not isinstance(table.write, Overwrite):
        # Members that are no longer declared are null.
        types = {column.name: column.type for column in facts.snapshot.columns}
        frame = with_members_of(frame, types)
        rows = _table_rows(session, frame)
    if parsed.changes is not None:
        from lakehouse.cdc.read import ChangeBatch
        from lakehouse.cdc.run import apply_changes

        load = ChangeBatch(session=session, batch=batch, facts=facts)
        apply_changes(load, frame, parsed.changes)
    else:
        # Spark reads large files in splits, and each split is written as it is read.
        if not files_of_spark(batch) or table.partition_by:
            landed_bytes = sum(file.size_bytes for file in batch.files)
            rows = commit_rows.arranged(rows, table, landed_bytes, parsed.row_count, facts)
        transaction = Transaction(app_id=ingest_app_id(table.key), version=batch.number)
        commit_rows.write_rows(session, rows, transaction, facts=facts)
    after = lake.facts(table.key)
    row_count = None if parsed.changes else parsed.row_count
    check_loaded(lake, table.key, batch.number, row_count, before=facts, after=after)
    check_frozen(session, batch)
    return after


def parsed_records(
    session: TableSession, batch: Batch, added: Sequence[str], plain: Collection[str] = ()
) -> "DataFrame":
    """The parsed records of a staged batch, and of the files in it that Spark reads itself."""
    frames = list["DataFrame"]()
    if batch.part_count and session.table.landing.format in ("parquet", "avro"):
        frames += staged_rows(session, batch)
    elif batch.part_count and session.table.landing.records_are_csv:
        frames += staged_csv(session, batch)
    elif batch.part_count:
        names = part_names(session.key, batch)
        frames.append(staged_lines(session.lake, session.spark, names))
    frames += spark_lines(session, batch, plain)
    parsed = [_parsed_lines(session, lines, added, batch.files) for lines in frames]
    return reduce(lambda union, more: union.unionByName(more), parsed)


def _parsed_lines(
    session: TableSession, lines: "DataFrame", added: Sequence[str], files: Sequence[LandedFile]
) -> "DataFrame":
    table = session.table
    if table.landing.changes is None:
        return parse_records(table.landing, lines, added, table.partition_by)
    from lakehouse.cdc.read import read_changes

    return read_changes(table, lines, added, [file.name for file in files])


def _table_rows(session: TableSession, frame: "DataFrame") -> "DataFrame":
    """The rows of parsed records, with the columns of the table."""
    if session.table.landing.changes is None:
        return table_rows(frame)
    from lakehouse.cdc.run import changed_rows

    return changed_rows(frame, session.table)
