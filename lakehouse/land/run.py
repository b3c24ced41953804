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
   its staged records are parsed again, and step 5 follows. If a write failed because of some rows,
   the batch is repeated with fewer files, until the file with these rows is alone and goes to
   quarantine (`land.rows`). If Spark ended, the files that may have ended it are set aside before
   the run fails (`land.spark.files`).
8. Delete the staged records. If there are many manifests, fold them into a segment
   (`land.ledger`).

**Safety properties**
- Landed files are never deleted or changed.
- Repeating a step adds nothing: manifest, quarantine and rows each carry the batch's number
  (`test_load.py`).
- Every record that is read becomes a row or a quarantined record. Both are counted before anything
  is written, and rows other than change data also after the commit (`test_bad_input.py`,
  `test_loaded_batches.py`).
- A table is not loaded if its log does not show which batches were loaded
  (`test_loaded_batches.py`).
- A batch that was written but is not in the table's log stops the load (`test_loaded_batches.py`,
  `test_load.py`).
- An `Overwrite` never replaces the table with zero rows (`test_choose_files.py`, `test_load.py`).
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused, Transient
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.text import count_of, names_in_parentheses
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Overwrite
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import TableSession
from lakehouse.land.ledger import PlannedBatches, landed_files
from lakehouse.land.loaded_batches import last_in_log, last_loaded, unfinished_batch
from lakehouse.land.plan.batches import (
    Batch,
    KnownFile,
    KnownFiles,
    LandedFile,
    Ledger,
    files_of_spark,
    quarantine_sentence,
    set_aside,
    without_files,
)
from lakehouse.land.plan.choose_files import (
    BatchPlan,
    FileRead,
    choose_batch,
    judge_file,
    may_be_by_spark,
    repeat_batch,
    settle_batch,
)
from lakehouse.land.plan.records import with_renamed_fields
from lakehouse.land.plan.undeclared import columns_in_force
from lakehouse.land.quarantine import take_out_lines
from lakehouse.land.rows import (
    ParsedBatch,
    confs_to_load,
    parse_batch,
    uncounted_batch,
    write_batch,
)
from lakehouse.land.staging import clear_staged, stage, staged_again
from lakehouse.spark.errors import ended_spark
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
        self._listing = dict[str, LandedFile]()  # those that are not read yet
        self._most_files: int | None = None  # in the next batch, after a write that failed
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
        self._listing = dict(self._landed)
        listed_paths = {f"{landing.prefix}{name}" for name in self._landed}
        if not self._loaded:
            self._facts_before = facts
        with session_confs(self._session.spark, {ANSI: "false"}):
            while True:
                last_batch = last_loaded(table, facts, ledger)
                unfinished = unfinished_batch(lake, table, last_batch, ledger, batches)
                if unfinished is None:
                    files = [*self._listing.values()]
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
                    self._set_damaged_aside(plan.batch, error)
                    raise
                ledger = batches.ledger()
        last_batch = last_in_log(table.key, facts)
        if self._loaded:
            clear_staged(lake.store, table.key)
            if landing.changes is not None:
                from lakehouse.cdc.deleted_keys import forget_replaced

                forget_replaced(lake.store, table.key, last_loaded=last_batch)
        # A failure loses neither rows nor manifests, and the next load folds them.
        with suppress(Transient, Refused):
            batches.fold(landed_paths=listed_paths, last_loaded_batch=last_batch, now_ms=now_ms())
        return self._outcome(facts, plan.explanation)

    def _outcome(self, after: TableFacts | None, explanation: Explanation) -> WriteOutcome:
        """The outcome of all loaded batches. `explanation` is used if no batch was loaded."""
        lake = self._session.lake
        table = self._session.table
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
                table.key,
                lines=self._counts["rows_quarantined"],
                files=sum(each.is_quarantined for each in set_aside),
            )
            if sentence:
                explanation = replace(explanation, more=f"; {sentence}")
        outcome = commit_rows.outcome_of(
            lake, table, before=self._facts_before, after=after, explanation=explanation
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
        """Loads the planned batch. Returns the table's facts.

        If the write fails because of some rows, the batch is made smaller, so that it can be
        repeated.
        """
        lake = session.lake
        key = session.key
        if plan.is_new:
            batch, parsed = self._read_new(session, plan, planned, ledger, facts)
        else:
            by_spark = _reads_of_spark(session, planned, None)
            batch = staged_again(lake.store, key, planned, session.table.landing, by_spark)
            batch, parsed = self._parse_planned(session, batch, ledger, facts)
            # The declaration may have changed since the first try and now accept quarantined lines.
            with session_confs(session.spark, confs_to_load(session.table, batch, facts)):
                take_out_lines(session, batch, parsed.frame if parsed.bad_count else None)
        try:
            with session_confs(session.spark, confs_to_load(session.table, batch, facts)):
                after = write_batch(session, batch, parsed, facts)
        except Exception as error:
            after = lake.facts(key)
            if parsed.is_uncounted and last_in_log(key, after) < batch.number:
                self._reason = Reason.BATCH_READY
                self._tell(f"{key}: batch {batch.number}: not all records are good; counting them")
                return after  # the batch is repeated, and its records are counted first
            self._make_smaller(session, batch, error)
            return lake.facts(key)
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

    def _parse_planned(
        self, session: TableSession, batch: Batch, ledger: Ledger, facts: TableFacts | None
    ) -> tuple[Batch, ParsedBatch]:
        """Parses a planned batch. Files that Spark cannot read are set aside in its manifest."""
        smaller, parsed, damaged = _parse_undamaged(session, batch, ledger, facts)
        if smaller == batch:
            return batch, parsed
        aside = [
            set_aside(file, damaged[file.name].problem or "", is_quarantined=True)
            for file in batch.files
            if file.name in damaged
        ]
        smaller = replace(smaller, set_aside=(*smaller.set_aside, *aside))
        self._batches.replace(smaller)
        return smaller, parsed

    def _make_smaller(self, session: TableSession, batch: Batch, error: Exception) -> None:
        """Keeps the first half of a batch's files, or sets its only file aside; or raises."""
        # Imported here, because only a failed write needs it.
        from lakehouse.land.rows import make_smaller

        smaller = make_smaller(session, self._batches, batch, error)
        kept = {each.name for each in (*smaller.files, *smaller.quarantined)}
        left = [file for file in batch.files if file.name not in kept]
        self._listing |= {file.name: self._landed.get(file.name, file) for file in left}
        self._most_files = max(1, len(smaller.files))
        self._reason = Reason.BATCH_READY
        finding = f"repeated with {count_of(len(smaller.files), 'file')}"
        if not left:
            finding = f"{smaller.quarantined[-1].name!r} goes to quarantine"
        self._tell(f"{session.key}: batch {batch.number}: some rows cannot be written; {finding}")

    def _set_damaged_aside(self, planned: Batch, error: Exception) -> None:
        """Sets the damaged files of a batch aside, if Spark ended while it read the batch.

        They are in the batch's manifest, so the next run continues without them.
        """
        lake = self._session.lake
        table = self._session.table
        if (
            not ended_spark(error)
            or last_in_log(table.key, lake.facts(table.key)) >= planned.number
        ):
            return
        # Imported here, because most loads do not fail.
        from lakehouse.land.spark.files import damage_by_name

        problems = damage_by_name(lake.store, planned, table.landing)
        if not problems:
            return
        is_overwrite = isinstance(table.write, Overwrite)
        newest = self._batches.ledger().newest
        if newest is not None and newest.number >= planned.number:
            batch = self._batches.batch(planned.number)
            smaller = without_files(batch, problems, is_overwrite=is_overwrite)
            # The other files are staged again.
            self._batches.replace(replace(smaller, part_count=None, record_count=None, shape=""))
        else:
            smaller = without_files(planned, problems, is_overwrite=is_overwrite)
            # The other files wait for the next batch.
            self._batches.plan(replace(smaller, files=(), part_count=0, record_count=0))
        names = names_in_parentheses([*problems])
        self._tell(
            f"{table.key}: batch {planned.number}: Spark ended while it read "
            f"{count_of(len(problems), 'file')}{names}; to quarantine with the next run"
        )

    def _read_new(
        self,
        session: TableSession,
        plan: BatchPlan,
        planned: Batch,
        ledger: Ledger,
        facts: TableFacts | None,
    ) -> tuple[Batch, ParsedBatch]:
        """Reads and parses the planned batch, and writes its manifest (unless no file is left).

        Files that were read, and files that no longer exist, are removed from the listing.
        """
        table = session.table
        landing = table.landing
        is_overwrite = isinstance(table.write, Overwrite)
        entries = {
            file.name: ledger.seen.get(f"{landing.prefix}{file.name}") for file in planned.files
        }
        loaded = dict[str, KnownFile]()
        for name, entry in entries.items():
            if entry is not None and entry.is_taken:
                loaded[name] = entry.as_loaded
        known_files = KnownFiles(
            loaded=loaded,
            columns=ledger.columns,
            table_types=_columns_of(table, facts),
            reads_whole=is_overwrite,
        )
        by_spark = _reads_of_spark(session, planned, known_files)
        staged = stage(
            session.lake.store, session.key, planned, landing, known_files, by_spark=by_spark
        )
        batch = replace(staged.batch, columns=staged.columns)
        damaged = dict[str, FileRead]()
        added = columns_in_force([*ledger.columns, *batch.columns], landing)
        parsed = uncounted_batch(session, batch, added, facts)
        if parsed is None:
            batch, parsed, damaged = _parse_undamaged(session, batch, ledger, facts)
        reads = {**staged.files, **damaged}
        judged = [
            judge_file(file, entries[file.name], reads[file.name], is_overwrite=is_overwrite)
            for file in planned.files
            if file.name in reads
        ]
        batch = settle_batch(
            replace(plan, batch=batch),
            judged,
            row_count=parsed.row_count,
            is_overwrite=is_overwrite,
        )
        for name in (*staged.files, *staged.gone):
            del self._listing[name]
        if batch.files or batch.set_aside:
            self._batches.plan(batch)
        return batch, parsed


def _reads_of_spark(
    session: TableSession, batch: Batch, known: KnownFiles | None
) -> dict[str, FileRead | None]:
    landing = session.table.landing
    if not any(file.by_spark or may_be_by_spark(file, landing) for file in batch.files):
        return {}
    # Imported here, because most batches have only small files.
    from lakehouse.land.spark.files import reads_of_spark

    return reads_of_spark(session, batch, known)


def _columns_of(table: Table, facts: TableFacts | None) -> dict[str, str]:
    """The columns that a batch must fit, with their types. An `Overwrite` replaces all columns."""
    if facts is None or isinstance(table.write, Overwrite):
        return {}
    return {column.name: column.type for column in facts.snapshot.columns}


def _parse(
    session: TableSession, batch: Batch, ledger: Ledger, facts: TableFacts | None
) -> tuple[Batch, ParsedBatch]:
    if files_of_spark(batch):
        from lakehouse.land.spark.files import with_new_columns

        types = _columns_of(session.table, facts)
        batch = with_new_columns(session, batch, ledger.columns, types)
    added = columns_in_force([*ledger.columns, *batch.columns], session.table.landing)
    return batch, parse_batch(session, batch, added, facts)


def _parse_undamaged(
    session: TableSession, batch: Batch, ledger: Ledger, facts: TableFacts | None
) -> tuple[Batch, ParsedBatch, dict[str, FileRead]]:
    """Parses a batch without the files that Spark cannot read to their end.

    Returns the smaller batch, its rows, and the files that were removed from it.
    """
    damaged = dict[str, FileRead]()
    while True:
        try:
            batch, parsed = _parse(session, batch, ledger, facts)
            return batch, parsed, damaged
        except Exception as error:
            if not files_of_spark(batch):
                raise
            from lakehouse.land.spark.files import without_damaged

            landing = session.table.landing
            batch, name, read = without_damaged(session.lake, batch, landing, error)
            damaged[name] = read
