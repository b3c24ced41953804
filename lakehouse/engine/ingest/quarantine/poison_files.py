"""The files of a batch whose rows cannot be written, set aside so that the others go on.

A write may fail for the sake of one row, though every record was parsed: an expression of the declaration raises, a constraint or an
invariant of the table is violated. Then:

1. Some files, or some records, are tried alone in an empty folder: a copy of the table that shares its files, or no table where there is
   none. One has to be written, or else the declaration is wrong.
2. All files are tried, and those that fail in halves (`core.ingest.poison_files`), until each that fails stands alone.
3. What the failed write remembers of deletions is removed. The batch's manifest is written anew, with those files set aside.
4. The load does the batch again, as if it had been killed. First its quarantine gets the files in the place of their lines.

**Safety properties** (tests in `test_poison_files.py`)
- Files are set aside only for an error that is about values, only if it comes again, and only while
  the table does not have the batch.
- Trials write to the empty folder, which is deleted afterwards. Neither the table nor its
  quarantine changes before the manifest does.
- A run that dies before step 3 leaves the batch as it was. After step 3 it leaves the smaller
  batch, which is done again.
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
from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.core.ingest.poison_files import (
    PROBES,
    any_can_be_written,
    failing_files,
    without_failing,
)
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.arrival import told_batch
from lakehouse.engine.ingest.changes.deleted_keys import forget_batch
from lakehouse.engine.ingest.parse_lines import OWN, staged_lines
from lakehouse.engine.ingest.staging import trial_folder
from lakehouse.engine.ingest.table_properties import declared_properties
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import causes_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Errors about values: data exceptions, violated constraints, Python functions and other routines, `raise_error`, text that is too long.
# Source: Spark 4.2.0, error-conditions.json and error-classes.json; Delta Lake 4.4.0, delta-error-classes.json
_OF_VALUES = ("22", "23", "38", "39", "P0", "54006")
_STATE = re.compile(r"SQLSTATE: (\w{5})")
# On a disk a partition of a text of more than some 250 bytes. Source: Hadoop 3.5, RawLocalFileSystem.create
_NO_FOLDER = re.compile(r"Mkdirs failed to create \S+")
_WRAPPED = ("", "TASK_WRITE_FAILED")
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The making of a batch's rows: `of` gives those of a batch with some of its files, with the columns of the table."""

    batch: Batch
    of: "Callable[[Batch], DataFrame]"


def isolate(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batches: PlannedBatches,
    rows: Rows,
    error: Exception,
) -> Batch:
    """The batch without the files that made its write fail with `error`, its manifest written; the caller holds the table's guard.

    Raises:
        Exception: `error` itself, if it is not about values.
        Broken: nothing that was tried can be written, or no file fails by itself.
    """
    batch, facts, problem = rows.batch, lake.facts(table.key), row_problem(error)
    if problem is None or told_batch(table.key, facts) >= batch.number:
        raise error
    folder = trial_folder(table.key)
    uri = f"{lake.settings.spark_root}/{folder}"
    target = None if facts is None else facts.snapshot
    why_not = cache(lambda files: _why_not(rows.of(_part_of(batch, files)), table, uri, target))
    try:
        if facts is not None:
            spark.sql(statements.clone(uri, facts.snapshot.uri))
        if not (
            any_can_be_written(batch.files, why_not) or _holds_a_good_row(rows, table, uri, target)
        ):
            raise _stop(table, batch, "nor can any part of it that was tried", problem) from error
        failing = failing_files(batch.files, why_not)
    finally:
        lake.store.delete([file.name for file in lake.store.list(folder)])
    if not failing:
        raise _stop(table, batch, "though each of its files can by itself", problem) from error
    records = staged_lines(lake, spark, table.key, _part_of(batch, [*failing])).count()
    is_overwrite, has_table = isinstance(table.write, Overwrite), facts is not None
    smaller = without_failing(
        batch, failing, failing_records=records, is_overwrite=is_overwrite, has_table=has_table
    )
    forget_batch(lake.store, table.key, batch.number)
    batches.replace(smaller)
    return smaller


def row_problem(error: BaseException) -> str | None:
    """The words of a failed write on a row's values; `None` if it failed for another reason."""
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException):
        return None
    trace = f"{getattr(error, '_stacktrace', '')}{getattr(error, '_stackTrace', '')}"  # over Connect, and of a driver in this process
    if no_folder := _NO_FOLDER.search(f"{error}{trace}"):
        return f"a partition has no folder: {no_folder[0]}"[:_SHOWN]
    states = {error.getSqlState() or "", *_STATE.findall(f"{error}{trace}")}
    if not any(state.startswith(_OF_VALUES) for state in states):
        return None
    messages = [cause.message for cause in causes_of(error) if cause.condition not in _WRAPPED] or [
        str(error)
    ]
    said = messages[-1].partition("\n\nJVM stacktrace:")[0]
    if (
        "Traceback (most recent call last)" in said
    ):  # of a Python function; its last line names the error
        said = [line for line in said.splitlines() if line.strip() and "SQLSTATE" not in line][-1]
    return " ".join(_STATE.sub("", said).split())[:_SHOWN]


def _part_of(batch: Batch, files: Sequence[LandedFile]) -> Batch:
    """The batch as if it had these files alone."""
    return replace(batch, files=tuple(files), isolated=((),))


def _why_not(rows: "DataFrame", table: Table, uri: str, target: Snapshot | None) -> str | None:
    try:
        commit_rows.write_frame(
            rows,
            uri,
            mode="overwrite" if isinstance(table.write, Overwrite) else "append",
            partition_by=commit_rows.partition_columns(table),
            properties=declared_properties(table),
            replaces_schema=commit_rows.has_other_shape(rows, table, target),
        )
    except Exception as error:
        if (problem := row_problem(error)) is None:
            raise
        return problem
    return None


def _holds_a_good_row(rows: Rows, table: Table, uri: str, target: Snapshot | None) -> bool:
    """Whether some of a batch's records can be written, so that the others fail for what is in them."""
    found = (
        rows.of(rows.batch).select(*OWN[:2]).orderBy(F.xxhash64(*OWN[:2])).limit(PROBES).collect()
    )
    records = (
        rows.of(rows.batch).where((F.col(OWN[0]) == file) & (F.col(OWN[1]) == line))
        for file, line in found
    )
    return any(_why_not(record, table, uri, target) is None for record in records)


def _stop(table: Table, batch: Batch, found: str, problem: str) -> Broken:
    return Broken(
        f"load of {table.key}: batch {batch.number} of {len(batch.files)} file(s) cannot be written, {found}: {problem}. Nothing was set "
        "aside; accepted: a declaration, or constraints of the table, by which its rows can be written; the batch is then done again"
    )
