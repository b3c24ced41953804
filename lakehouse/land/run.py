"""Loads landed files into a table, exactly once.

1. List the landing prefix and compare it with the ledger of earlier batches.
2. Give the next batch a number. Read each of its files once, and stage its records.
3. Parse and count the staged records: each is a row, or has a reason for rejection.
4. Write the batch's manifest: the files as they were read, and the files set aside with reasons.
   If Spark reads all files itself, the write counts them, and fails at a record without a row.
   Then the batch is repeated, and counted first.
5. Write rejected records and files to the quarantine table, under the batch's number.
6. Write the rows to the table, under the batch's number. With this commit, the batch is loaded.
7. Repeat steps 2 to 6 until no listed file is left to load. An unfinished batch is repeated first:
   its staged records are parsed again, and step 5 follows. If a batch failed because of some rows,
   it is repeated with fewer files, until the file with these rows is alone and goes to quarantine,
   as a damaged file does (`LandingLoad._make_smaller`). If Spark ended, the files that may have
   ended it are set aside before the run fails.
8. Delete the staged records. If there are many manifests, fold them into a segment
   (`land.ledger`).

**Safety properties**
- Landed files are never deleted or changed.
- Repeating a step adds nothing: manifest, quarantine and rows each carry the batch's number
  (`land/test_run.py`).
- Every record that is read becomes a row or a quarantined record. Both are counted before anything
  is written, and rows other than change data also after the commit (`test_bad_input.py`,
  `test_ledger.py`).
- A table is not loaded if its log does not show which batches were loaded
  (`test_ledger.py`).
- A batch that was written but is not in the table's log stops the load, and so does a batch that
  another statement wrote with another number of rows (`test_ledger.py`, `land/test_run.py`).
- Before a batch is repeated, its earlier writes are made to fail, in case a statement goes on
  without its client (`land/test_run.py`).
- If a run dies between any two steps, the next run repeats the batch, or the smaller one
  (`test_unwritable_rows.py`).
- An `Overwrite` never replaces the table with zero rows (`test_choose_files.py`,
  `land/test_run.py`).

A write may fail because of one row although every record was parsed: an expression of the
declaration raises an error, or the row violates a constraint or an invariant of the table. It may
also find damage in a column that was not read when the rows were counted. Spark names such a file.
A file is blamed only if its rows alone could not be written, for an error about values, or if Spark
could not read it (`test_unwritable_rows.py`).

Modules for change data are imported where they are used, because most loads have no change data.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import count_of, names_in_parentheses
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ingest_app_id
from lakehouse.delta.log import TableFacts
from lakehouse.delta.snapshot import types_by_name
from lakehouse.lake.lake import TableSession
from lakehouse.land.ledger import (
    check_loaded,
    end_earlier_writes,
    landed_files,
    last_in_log,
    last_loaded,
    planned_batches,
    quarantine_has_files,
    unfinished_batch,
)
from lakehouse.land.parse_lines import (
    JSON_CONFS,
    REASON,
    STAGED_SCHEMA,
    count_lines,
    failing_at_bad_records,
    parse_records,
    staged_lines,
    table_rows,
    without_rescued,
)
from lakehouse.land.plan.batches import (
    Batch,
    KnownFiles,
    LandedFile,
    Ledger,
    files_of_spark,
    quarantine_sentence,
    without_files,
)
from lakehouse.land.plan.choose_files import BatchPlan, choose_batch, repeat_batch, settle_batch
from lakehouse.land.plan.records import RESCUED, columns_in_force, with_renamed_fields
from lakehouse.land.quarantine import quarantine, take_out_lines
from lakehouse.land.spark.files import (
    changed_files,
    check_frozen,
    damaged_files,
    reads_of_spark,
    spark_lines,
    staged_csv,
    with_new_columns,
)
from lakehouse.land.spark.parquet import staged_rows
from lakehouse.land.spark.text import text_confs
from lakehouse.land.staging import clear_staged, part_names, stage, staged_again
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.errors import causes_of, ended_spark, first_line, is_conflict
from lakehouse.spark.frames import Transaction, evaluated_once, with_members_of
from lakehouse.spark.temporary_confs import (
    ANSI,
    Size,
    confs_to_read,
    merged_into,
    session_confs,
)
from lakehouse.write import commit_rows
from lakehouse.write.outcome import WriteOutcome

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


@frozen
class ParsedBatch:
    """The parsed records of a batch.

    `frame` is `None` for a batch without staged records. `changes` has the counts of change data.
    With `is_uncounted`, all records count as good, and a write of the frame fails if one is bad.
    """

    frame: "DataFrame | None"
    row_count: int = 0
    bad_count: int = 0
    rescued_count: int = 0
    changes: "ChangeCounts | None" = None
    is_uncounted: bool = False


class LandingLoad:
    """One run's load of a table. The caller holds the table's lock."""

    def __init__(self, session: TableSession, tell: Callable[[str], None]) -> None:
        self._session = session
        self._tell = tell
        self._batches = planned_batches(session.lake, session.table)
        self._read = set[str]()  # the names of files in earlier batches of this run
        self._most_files: int | None = None  # in the next batch, after a write that failed
        self._repeated = 0  # the batch whose earlier writes have been ended
        self._loaded = list[Batch]()
        self._counts = Counter[str]()  # by name of a field in `WriteOutcome`
        # `BATCH_READY` once a new batch was loaded.
        self._reason = Reason.BATCH_UNFINISHED
        self._facts_before: TableFacts | None = None

    def run(self, facts: TableFacts | None) -> WriteOutcome:
        """Loads all landed files, in one or more batches, into the table (`facts` if it exists).

        It may be called again if another writer committed first. The outcome then includes the
        batches that earlier calls loaded.
        """
        lake = self._session.lake
        table = self._session.table
        batches = self._batches
        landing = table.landing
        ledger = batches.ledger()
        landed = landed_files(lake.store, landing)
        self._read = set[str]()
        if not self._loaded:
            self._facts_before = facts
        with session_confs(self._session.spark, {ANSI: "false"}):
            while True:
                last_batch = last_loaded(table, facts, ledger)
                unfinished = unfinished_batch(lake, table, last_batch, ledger, batches)
                if unfinished is None:
                    files = [file for file in landed if file.name not in self._read]
                    plan = choose_batch(
                        files, ledger, landing, table.write, most_files=self._most_files
                    )
                else:
                    plan = repeat_batch(unfinished)
                if plan.batch is None:
                    break
                session = replace(self._session, table=with_renamed_fields(table))
                try:
                    facts = self._load_batch(session, plan, plan.batch, ledger, facts)
                except Exception as error:
                    self._make_smaller(plan.batch, error)
                    if ended_spark(error):
                        raise
                    facts = lake.facts(table.key)
                ledger = batches.ledger()
        last_batch = last_in_log(table.key, facts)
        if self._loaded:
            clear_staged(lake.store, table.key, last_batch)
            if landing.changes is not None:
                from lakehouse.cdc.deleted_keys import forget_replaced

                forget_replaced(lake.store, table.key, last_loaded=last_batch)
        paths = {f"{landing.prefix}{file.name}" for file in landed}
        # A failure loses neither rows nor manifests, and the next load folds them.
        with suppress(Transient, Refused):
            batches.fold(landed_paths=paths, last_loaded_batch=last_batch, now_ms=now_ms())
        return self._outcome(facts, plan.explanation)

    def _outcome(self, after: TableFacts | None, explanation: Explanation) -> WriteOutcome:
        """The outcome of all loaded batches. `explanation` is used if no batch was loaded."""
        files = [file for batch in self._loaded for file in batch.files]
        set_aside = tuple(each for batch in self._loaded for each in batch.set_aside)
        if self._loaded:
            first = self._loaded[0].number
            last = self._loaded[-1].number
            explanation = self._reason.explain(
                files=len(files),
                bytes=total_bytes(files),
                batch=str(last) if first == last else f"{first} to {last}",
                set_aside=len(set_aside),
                names=names_in_parentheses([file.name for file in set_aside]),
            )
            sentence = quarantine_sentence(
                self._session.key,
                lines=self._counts["rows_quarantined"],
                files=sum(each.is_quarantined for each in set_aside),
            )
            if sentence:
                explanation = replace(explanation, more=f"; {sentence}")
        outcome = commit_rows.outcome_of(
            self._session, before=self._facts_before, after=after, explanation=explanation
        )
        from_files = [name for batch in self._loaded for name in batch.columns]
        return replace(
            outcome,
            **self._counts,
            columns_added=tuple(dict.fromkeys([*from_files, *outcome.columns_added])),
            files_read=len(files),
            set_aside=set_aside,
        )

    def _load_batch(
        self,
        session: TableSession,
        plan: BatchPlan,
        planned: Batch,
        ledger: Ledger,
        facts: TableFacts | None,
    ) -> TableFacts | None:
        """Loads the planned batch, unless it has to be repeated. Returns the table's facts."""
        lake = session.lake
        key = session.key
        if plan.is_new:
            batch, parsed = self._read_new(session, plan, planned, ledger, facts)
        else:
            if self._repeated != planned.number:
                facts = end_earlier_writes(lake, key, planned.number)
                self._repeated = planned.number
            batch, parsed = self._read_again(session, planned, ledger, facts)
        try:
            with session_confs(session.spark, confs_to_load(session.table, batch, facts)):
                after = write_batch(session, batch, parsed, facts)
        except Exception:
            after = lake.facts(key)
            is_loaded = last_in_log(key, after) >= batch.number
            if is_loaded and parsed.changes is None:
                # By another statement, perhaps of a killed client with another declaration.
                count = parsed.row_count
                check_loaded(lake, key, batch.number, count, before=facts, after=after)
            if not parsed.is_uncounted or is_loaded:
                raise
            self._reason = Reason.BATCH_READY
            self._tell(f"{key}: batch {batch.number}: not all records are good; counting them")
            return after  # the batch is repeated, and its records are counted first
        if batch.files and self._most_files is not None:
            self._most_files *= 2
        self._tell(
            f"{key}: batch {batch.number}: {count_of(len(batch.files), 'file')}, "
            f"{count_of(parsed.row_count, 'row')}; {count_of(plan.left, 'file')} left to load"
        )
        if parsed.changes is not None and batch.files and after is not None:
            from lakehouse.cdc.run import superseded_count

            self._counts["rows_superseded"] += superseded_count(
                lake, key, parsed.changes, before=facts, after=after
            )
        self._counts.update(rows_quarantined=parsed.bad_count, rows_rescued=parsed.rescued_count)
        if plan.is_new:
            self._reason = Reason.BATCH_READY
        self._loaded.append(batch)
        return after

    def _read_new(
        self,
        session: TableSession,
        plan: BatchPlan,
        planned: Batch,
        ledger: Ledger,
        facts: TableFacts | None,
    ) -> tuple[Batch, ParsedBatch]:
        """Reads and parses a new batch, and writes its manifest (unless no file is left)."""
        table = session.table
        known = KnownFiles(
            loaded={
                file.name: ledger.loaded(f"{planned.prefix}{file.name}") for file in planned.files
            },
            columns=ledger.columns,
            table_types=_columns_of(table, facts),
            is_overwrite=table.is_overwrite,
        )
        by_spark = reads_of_spark(session, planned, known)
        lake = session.lake
        batch, reads = stage(lake.store, session.key, planned, table.landing, known, by_spark)
        added = columns_in_force([*ledger.columns, *batch.columns], table.landing)
        plain = {name for name, read in by_spark.items() if read is not None and read.is_plain}
        parsed = uncounted_batch(session, batch, added, facts, plain)
        if parsed is None:
            batch, parsed = parse_batch(session, batch, ledger, facts)
        batch = settle_batch(plan, batch, known, reads, row_count=parsed.row_count)
        self._read |= reads.keys()
        if batch.files or batch.set_aside:
            self._batches.plan(batch)
        return batch, parsed

    def _read_again(
        self, session: TableSession, planned: Batch, ledger: Ledger, facts: TableFacts | None
    ) -> tuple[Batch, ParsedBatch]:
        """Parses a batch that has a manifest. Its manifest gets the columns that are found now."""
        by_spark = reads_of_spark(session, planned, None)
        landing = session.table.landing
        batch = staged_again(session.lake.store, session.key, planned, landing, by_spark)
        batch, parsed = parse_batch(session, batch, ledger, facts)
        if batch.columns != planned.columns:
            self._batches.replace(batch)
        # The declaration may have changed since the first try and now accept quarantined lines.
        with session_confs(session.spark, confs_to_load(session.table, batch, facts)):
            take_out_lines(session, batch, parsed.frame if parsed.bad_count else None)
        return batch, parsed

    def _make_smaller(self, planned: Batch, error: Exception) -> None:
        """Sets the files aside because of which a batch failed, or leaves half of its files.

        The batch is then repeated, or the next run repeats it if Spark ended.

        Raises:
            Transient: another process has loaded the batch, and deleted its staged records.
            Exception: `error` itself, if no file is to blame, or if the table has the batch.
        """
        lake = self._session.lake
        table = self._session.table
        if last_in_log(table.key, lake.facts(table.key)) >= planned.number:
            if isinstance(error, LakehouseError) or is_conflict(error):
                raise error
            raise Transient(
                f"ingest of {table.key}: batch {planned.number} is in the table, but a statement of"
                f" this load failed ({first_line(error)}). Use the same command again"
            ) from error
        has_manifest = self._batches.ledger().newest_number >= planned.number
        batch = self._batches.batch(planned.number) if has_manifest else planned
        problems = blamed_files(self._session, batch, error)
        smaller = replace(batch, files=batch.files[: len(batch.files) // 2])
        if problems:
            is_overwrite = table.is_overwrite
            smaller = without_files(batch, problems, is_overwrite=is_overwrite)
        if has_manifest:
            end_earlier_writes(lake, table.key, batch.number)
            self._repeated = batch.number
            self._forget_try(batch, error)
            # The remaining files are staged again.
            self._batches.replace(replace(smaller, part_count=None, record_count=None, shape=""))
        elif problems:
            # The other files wait for the next batch.
            self._batches.plan(replace(smaller, files=(), part_count=0, record_count=0))
        kept = {file.name for file in smaller.files}
        self._read -= {file.name for file in batch.files} - kept - problems.keys()
        self._most_files = max(1, len(smaller.files))
        self._reason = Reason.BATCH_READY
        finding = f"repeated with {count_of(len(smaller.files), 'file')}"
        if problems:
            files = f"{count_of(len(problems), 'file')}{names_in_parentheses([*problems])}"
            finding = f"to quarantine: {files}"
        self._tell(f"{table.key}: batch {batch.number}: some rows cannot be written; {finding}")

    def _forget_try(self, batch: Batch, error: Exception) -> None:
        """Removes what a failed write of a batch left in the quarantine and among deleted keys."""
        session = self._session
        if not ended_spark(error):
            take_out_lines(session, batch)
        if session.table.landing.changes is not None:
            from lakehouse.cdc.deleted_keys import forget_batch

            forget_batch(session.lake.store, session.key, batch.number)


def _columns_of(table: Table, facts: TableFacts | None) -> dict[str, str]:
    """The columns that a batch must fit, with their types. An `Overwrite` replaces all columns."""
    if facts is None or table.is_overwrite:
        return {}
    return types_by_name(facts.snapshot.columns)


def blamed_files(session: TableSession, batch: Batch, error: Exception) -> dict[str, str]:
    """The files because of which a batch failed with `error`, each with its problem.

    Empty if it is unknown which of several files has the rows that cannot be written.

    Raises:
        Exception: `error` itself, if it is neither about values nor about a damaged file.
    """
    changed = changed_files(session.lake.store, batch)
    if changed:
        return changed
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
    read: list[Size] = [(0, total_bytes(batch.files))]
    if facts is not None and table.landing.changes is not None:
        read.append(merged_into(facts.snapshot))
    return {**confs_to_read(read, records=batch.record_count or 0), **confs}


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
    is_overwrite = table.is_overwrite
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
    return ParsedBatch(frame=frame, row_count=batch.record_count, is_uncounted=True)


def parse_batch(
    session: TableSession, batch: Batch, ledger: Ledger, facts: TableFacts | None
) -> tuple[Batch, ParsedBatch]:
    """Parses the staged records of a batch, and checks their count and columns.

    Returns also the batch, with the new columns of files that Spark reads.

    Raises:
        Broken: the count differs from the number of staged records.
        Refused: the existing table (`facts`) needs a change of columns that a write must not make.
    """
    table = session.table
    batch = with_new_columns(session, batch, ledger.columns, _columns_of(table, facts))
    added = columns_in_force([*ledger.columns, *batch.columns], table.landing)
    assert batch.part_count is not None and batch.record_count is not None
    if not batch.part_count and not files_of_spark(batch):
        return batch, ParsedBatch(frame=None)
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
    return batch, ParsedBatch(
        frame=frame,
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
    lines = session.spark.createDataFrame([], STAGED_SCHEMA)
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
    frame = parsed.frame
    assert frame is not None
    rows = _table_rows(session, frame)
    facts = commit_rows.follow_declaration(session, rows, facts)
    # Members that are no longer declared are null.
    frame = with_members_of(frame, _columns_of(table, facts))
    if parsed.changes is not None:
        from lakehouse.cdc.read import ChangeBatch
        from lakehouse.cdc.run import apply_changes

        load = ChangeBatch(session=session, batch=batch, facts=facts)
        apply_changes(load, frame, parsed.changes)
    else:
        rows = _table_rows(session, frame)
        # Spark reads large files in splits, and each split is written as it is read.
        if not files_of_spark(batch) or table.partition_by:
            landed_bytes = total_bytes(batch.files)
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
