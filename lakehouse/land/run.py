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
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused, Transient
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.text import count_of, names_in_parentheses
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Overwrite
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import TableSession
from lakehouse.land.ledger import (
    PlannedBatches,
    check_loaded,
    end_earlier_writes,
    landed_files,
    last_in_log,
    last_loaded,
    unfinished_batch,
)
from lakehouse.land.plan.batches import (
    Batch,
    LandedFile,
    Ledger,
    known_files,
    quarantine_sentence,
    without_files,
)
from lakehouse.land.plan.choose_files import (
    BatchPlan,
    choose_batch,
    repeat_batch,
    settle_batch,
)
from lakehouse.land.plan.records import columns_in_force, with_renamed_fields
from lakehouse.land.quarantine import take_out_lines
from lakehouse.land.rows import (
    ParsedBatch,
    blamed_files,
    confs_to_load,
    parse_batch,
    uncounted_batch,
    write_batch,
)
from lakehouse.land.spark.files import reads_of_spark, with_new_columns
from lakehouse.land.staging import clear_staged, stage, staged_again
from lakehouse.spark.errors import ended_spark, first_line, is_conflict
from lakehouse.spark.temporary_confs import ANSI, session_confs
from lakehouse.write import commit_rows
from lakehouse.write.outcome import WriteOutcome


class LandingLoad:
    """One run's load of a table. The caller holds the table's lock."""

    def __init__(self, session: TableSession, tell: Callable[[str], None]) -> None:
        self._session = session
        self._tell = tell
        landing = session.table.landing
        self._batches = PlannedBatches(session.lake.store, session.key, prefix=landing.prefix)
        self._landed = dict[str, LandedFile]()  # as listed
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
        # Called for its checks: the log of another table stops the load here.
        last_loaded(table, facts, ledger)
        self._landed = {file.name: file for file in landed_files(lake.store, landing)}
        self._read = set[str]()
        listed_paths = {f"{landing.prefix}{name}" for name in self._landed}
        if not self._loaded:
            self._facts_before = facts
        with session_confs(self._session.spark, {ANSI: "false"}):
            while True:
                last_batch = last_loaded(table, facts, ledger)
                unfinished = unfinished_batch(lake, table, last_batch, ledger, batches)
                if unfinished is None:
                    files = [file for file in self._landed.values() if file.name not in self._read]
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
        # A failure loses neither rows nor manifests, and the next load folds them.
        with suppress(Transient, Refused):
            batches.fold(landed_paths=listed_paths, last_loaded_batch=last_batch, now_ms=now_ms())
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
                bytes=sum(file.size_bytes for file in files),
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
        is_overwrite = isinstance(table.write, Overwrite)
        known = known_files(planned, ledger, _columns_of(table, facts), reads_whole=is_overwrite)
        by_spark = reads_of_spark(session, planned, known)
        lake = session.lake
        batch, reads = stage(lake.store, session.key, planned, table.landing, known, by_spark)
        added = columns_in_force([*ledger.columns, *batch.columns], table.landing)
        plain = {name for name, read in by_spark.items() if read is not None and read.is_plain}
        parsed = uncounted_batch(session, batch, added, facts, plain)
        if parsed is None:
            batch, parsed = _parse(session, batch, ledger, facts)
        batch = settle_batch(
            plan, batch, ledger, reads, row_count=parsed.row_count, is_overwrite=is_overwrite
        )
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
        batch, parsed = _parse(session, batch, ledger, facts)
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
            is_overwrite = isinstance(table.write, Overwrite)
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
    if facts is None or isinstance(table.write, Overwrite):
        return {}
    return {column.name: column.type for column in facts.snapshot.columns}


def _parse(
    session: TableSession, batch: Batch, ledger: Ledger, facts: TableFacts | None
) -> tuple[Batch, ParsedBatch]:
    types = _columns_of(session.table, facts)
    batch = with_new_columns(session, batch, ledger.columns, types)
    added = columns_in_force([*ledger.columns, *batch.columns], session.table.landing)
    return batch, parse_batch(session, batch, added, facts)
