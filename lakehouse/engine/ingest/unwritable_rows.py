"""Makes a batch smaller if its rows cannot be written, until a file that fails is alone.

A write may fail because of one row although every record was parsed: an expression of the
declaration raises an error, or the row violates a constraint or an invariant of the table.

1. Remove the quarantine's entries of the batch's records, and for change data the deletions that
   the failed write remembered. The next try writes them again.
2. Rewrite the batch's manifest: the first half of its files stays, and the others wait for later
   batches. A file that is alone already goes to quarantine.
3. The load repeats the batch, as after a kill.

**Safety properties** (tests in `test_unwritable_rows.py`)
- A file is set aside only if its rows alone could not be written, for an error about values.
- Nothing changes if the table has the batch.
- If a run dies between any two steps, the next run repeats the batch, or the smaller one.
"""

import re
from dataclasses import replace

from lakehouse.core.declaration.write_modes import Overwrite
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, set_aside
from lakehouse.engine.ingest.changes.deleted_keys import forget_batch
from lakehouse.engine.ingest.loaded_batches import last_in_log
from lakehouse.engine.ingest.quarantine.entries import take_out_lines
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import TableSession
from lakehouse.engine.spark.errors import causes_of

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


def make_smaller(
    session: TableSession, batches: PlannedBatches, batch: Batch, error: Exception
) -> Batch:
    """Rewrites the manifest of a batch whose write failed with `error`; returns the new batch.

    Raises:
        Exception: `error` itself, if it is not about values, or if the table has the batch.
        Broken: the batch is not the newest.
    """
    lake = session.lake
    table = session.table
    problem = row_problem(error)
    if problem is None or last_in_log(table.key, lake.facts(table.key)) >= batch.number:
        raise error
    smaller = _first_half(batch)
    if not smaller.files:
        is_overwrite = isinstance(table.write, Overwrite)
        smaller = _without_file(batch, problem, is_overwrite=is_overwrite)
    take_out_lines(session, batch)
    forget_batch(lake.store, table.key, batch.number)
    try:
        batches.replace(smaller)
    except Broken as refusal:
        raise Broken(f"{refusal}. The problem is: {problem}") from error
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


def _first_half(batch: Batch) -> Batch:
    """The batch with the first half of its files, which are staged again; no file of one."""
    half = batch.files[: len(batch.files) // 2]
    return replace(batch, files=half, part_count=None, record_count=None, shape="")


def _without_file(batch: Batch, problem: str, *, is_overwrite: bool) -> Batch:
    """The batch without its only file, which goes to quarantine.

    An `Overwrite` omits the older files that the file superseded. So the next batch chooses again.
    """
    why = f"its rows cannot be written: {problem}"
    kept = batch.quarantined if is_overwrite else batch.set_aside
    return replace(
        batch,
        files=(),
        set_aside=(*kept, *(set_aside(file, why, is_quarantined=True) for file in batch.files)),
        columns=(),
        part_count=0,
        record_count=0,
    )
