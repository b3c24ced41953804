"""Isolates poison files: landed files with rows that cannot be written.

A write may fail because of one row although every record was parsed: an expression of the
declaration raises an error, or the row violates a constraint or an invariant of the table. In that
case, the rest of the batch is loaded:

1. Try to write a few files, each alone, into a separate folder. The folder is a shallow clone of
   the table, or empty if there is no table. If all fail, try a few records, each alone. If these
   fail, too, the fault is in the declaration or the table, and the load stops.
2. Try all files together. Split each group that fails into halves until single files are found
   (`core.ingest.unwritable_files`). A search ends after a limited number of them. If there are
   more, the repeated write fails, and the next search finds others.
3. For change data, delete the folder in which the failed write remembered its deletions. Rewrite
   the batch's manifest with the failing files set aside.
4. The load repeats the batch, as after a kill. It first replaces the quarantine's entries for
   records of the failing files by one entry per file.

**Safety properties** (tests in `test_unwritable_files.py`)
- Files are set aside only for an error about values, only if the error occurs again, and only while
  the table does not have the batch.
- Trials write to a separate folder, which is deleted afterwards. Neither the table nor its
  quarantine changes before the manifest does.
- If a run dies before step 3, the batch is unchanged. After step 3, the smaller batch is repeated.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Overwrite
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, LandedFile, files_of_spark
from lakehouse.core.ingest.unwritable_files import (
    PROBES,
    any_can_be_written,
    failing_files,
    without_failing,
)
from lakehouse.core.text import count_of
from lakehouse.engine.ingest.changes.deleted_keys import forget_batch
from lakehouse.engine.ingest.commit_rows import frame_write
from lakehouse.engine.ingest.loaded_batches import last_in_log
from lakehouse.engine.ingest.parse_lines import ORIGIN, staged_lines
from lakehouse.engine.ingest.staged_parts import trial_folder
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark import delta_writes, statements
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.errors import causes_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
_SOURCE_FILE, _SOURCE_LINE = ORIGIN[:2]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOfBatch:
    """A batch, and the function `of` that returns the rows of some of the batch's files."""

    batch: Batch
    of: "Callable[[Batch], DataFrame]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """Writes rows into a separate folder in the same way as into the table."""

    table: Table
    uri: str
    target: Snapshot | None

    def problem(self, rows: "DataFrame") -> str | None:
        """Why the values of these rows cannot be written; `None` if they can."""
        try:
            write = frame_write(rows, self.table, self.target)
            delta_writes.write_frame(rows, self.uri, write)
        except Exception as error:
            problem = row_problem(error)
            if problem is None:
                raise
            return problem
        return None


def without_poison_files(
    session: TableSession, batches: PlannedBatches, rows: RowsOfBatch, error: Exception
) -> Batch:
    """Removes the files whose rows made a batch's write fail with `error`; returns the new batch.

    Its manifest is rewritten. The caller holds the table's lock.

    Raises:
        Exception: `error` itself, if it is not about values, or if the table has the batch.
        Broken: no file or record that is tried alone can be written, or no file fails alone.
    """
    lake = session.lake
    spark = session.spark
    table = session.table
    batch = rows.batch
    facts = lake.facts(table.key)
    problem = row_problem(error)
    if problem is None or last_in_log(table.key, facts) >= batch.number:
        raise error
    folder = trial_folder(table.key)
    trial = _Trial(
        table=table,
        uri=f"{lake.settings.spark_root}/{folder}",
        target=None if facts is None else facts.snapshot,
    )

    @cache
    def why_not(files: tuple[LandedFile, ...]) -> str | None:
        return trial.problem(rows.of(_part_of(batch, files)))

    try:
        if facts is not None:
            spark.sql(statements.clone(trial.uri, facts.snapshot.uri))
        if not (any_can_be_written(batch.files, why_not) or _has_a_good_row(rows, trial)):
            reason = "and neither can any file or record of it that was tried alone"
            raise _unwritable(table, batch, reason, problem) from error
        failing = failing_files(batch.files, why_not)
    finally:
        lake.store.delete([file.name for file in lake.store.list(folder)])
    if not failing:
        reason = "although trial writes of all its files, together or in parts, succeeded"
        raise _unwritable(table, batch, reason, problem) from error
    smaller = without_failing(
        batch,
        failing,
        failing_records=_count_records(session, _part_of(batch, [*failing])),
        is_overwrite=isinstance(table.write, Overwrite),
        has_table=facts is not None,
    )
    forget_batch(lake.store, table.key, batch.number)
    batches.replace(smaller)
    return smaller


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


def _part_of(batch: Batch, files: Sequence[LandedFile]) -> Batch:
    """The batch as if it had only these files."""
    # `staged_lines` skips other files' records only if files were removed from the batch. So this
    # part records one removal, of no files.
    return replace(batch, files=tuple(files), isolated=((),))


def _count_records(session: TableSession, part: Batch) -> int:
    """The number of staged records, and of rows in files that Spark reads itself."""
    count = 0
    if part.part_count:
        count += staged_lines(session.lake, session.spark, session.key, part).count()
    if files_of_spark(part):
        from lakehouse.engine.ingest.spark_parquet import count_rows

        count += count_rows(session.lake.store, part)
    return count


def _has_a_good_row(rows: RowsOfBatch, trial: _Trial) -> bool:
    """Whether at least one of up to `PROBES` records can be written alone.

    If so, the write fails because of other records' values.
    """
    records = rows.of(rows.batch)
    samples = (
        records.select(_SOURCE_FILE, _SOURCE_LINE)
        .orderBy(F.xxhash64(_SOURCE_FILE, _SOURCE_LINE))
        .limit(PROBES)
        .collect()
    )
    for file, line in samples:
        is_sample = (F.col(_SOURCE_FILE) == file) & (F.col(_SOURCE_LINE) == line)
        if trial.problem(records.where(is_sample)) is None:
            return True
    return False


def _unwritable(table: Table, batch: Batch, finding: str, problem: str) -> Broken:
    return Broken(
        f"load of {table.key}: batch {batch.number} ({count_of(len(batch.files), 'file')}) cannot "
        f"be written, {finding}: {problem}. Nothing was set aside. Change the declaration, or the "
        "table's constraints, so that the rows can be written. The next load repeats the batch"
    )
