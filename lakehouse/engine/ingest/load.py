"""Landed files into a table, exactly once.

1. Files that were loaded long ago leave the landing area (`engine.ingest.retire`), before a commit may clean up the log by which they go.
2. The landing prefix is listed and compared with the ledger of the batches before.
3. The next batch gets a number. Its files are read once, each as it is now, and their records are staged.
4. The staged records are parsed and counted: each is a row, or has a reason why it is none.
5. The batch's manifest is written: its files as they were read, and those that are set aside with their reasons.
6. The records that are no rows go to the quarantine table, under the batch's number, and so do files that a person should look at.
7. The rows go to the table, under the batch's number; with this commit the batch has arrived. Its staged records are removed.
8. The same again, until nothing of the listing is left. An unfinished batch is done first, from step 6 on; so is one whose write
   failed because of some rows, without the files that hold them (`engine.ingest.quarantine.poison_files`).
9. Where there are many manifests, they are folded into a segment (`engine.journal.planned_batches`).

**Safety properties**
- Landed files are moved and deleted in step 1 alone, and never changed (`test_retire.py`).
- Repeating a step adds nothing: manifest, quarantine and rows each carry the number
  (`test_load.py`).
- Every record that is read is a row or a quarantined record, counted before anything is written.
  The row count of the commit is compared with them (`test_bad_input.py`, `test_arrival.py`).
- A table whose log does not show which batches it holds is not loaded (`test_arrival.py`).
- A batch that was written and did not arrive stops the load (`test_arrival.py`, `test_load.py`).
- An `Overwrite` replaces the table only by at least one row (`test_next_batch.py`, `test_load.py`).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Overwrite
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ingest.batches import Batch, LandedFile, Ledger, ingest_app_id
from lakehouse.core.ingest.inferred import pinned_table
from lakehouse.core.ingest.next_batch import BatchPlan, choose_batch, repeat_batch
from lakehouse.core.ingest.outcome import WriteOutcome, quarantine_sentence
from lakehouse.core.ingest.read_files import judge_file, settle_batch
from lakehouse.core.ingest.undeclared import AddedColumn, columns_in_force
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.text import names_in_parentheses
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.arrival import (
    arrived_batch,
    check_arrived,
    told_batch,
    unfinished_batch,
)
from lakehouse.engine.ingest.changes.apply import apply_changes, changed_rows, superseded_count
from lakehouse.engine.ingest.changes.deleted_keys import forget_replaced
from lakehouse.engine.ingest.changes.read import ChangeCounts, read_changes
from lakehouse.engine.ingest.changes.rows import ChangeBatch
from lakehouse.engine.ingest.changes.unsent import checked_changes
from lakehouse.engine.ingest.parse_lines import (
    count_lines,
    parse_records,
    staged_lines,
    table_rows,
)
from lakehouse.engine.ingest.quarantine.entries import (
    quarantine,
    quarantine_arrived,
    quarantine_poison_files,
    take_out_landed_again,
)
from lakehouse.engine.ingest.quarantine.poison_files import RowsOfBatch, without_poison_files
from lakehouse.engine.ingest.retire import retire_first
from lakehouse.engine.ingest.staging import clear_staged, stage, staged_again
from lakehouse.engine.ingest.undeclared_columns import without_rescued
from lakehouse.engine.ingest.work_size import confs_to_load
from lakehouse.engine.journal.planned_batches import PlannedBatches, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.session_settings import ANSI, session_confs
from lakehouse.engine.table_session import TableSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """The parsed records of a batch; `None` where it has no files. `added` are the columns that their undeclared fields have."""

    frame: "DataFrame | None"
    added: Sequence[AddedColumn] = ()
    row_count: int = 0
    bad_count: int = 0
    rescued_count: int = 0
    changes: ChangeCounts | None = None


class LandingLoad:
    """One run's load of a table, whose guard the caller holds."""

    def __init__(
        self,
        lake: Lake,
        spark: "SparkSession",
        table: Table,
        tell: Callable[[str], None],
    ) -> None:
        self._lake = lake
        self._spark = spark
        self._table = table
        self._tell = tell
        self._batches = PlannedBatches(lake.store, table.key, prefix=table.landing.prefix)
        self._listing = dict[str, LandedFile]()
        self._loaded, self._counts = list[Batch](), Counter[str]()
        self._reason = Reason.BATCH_UNFINISHED  # as long as every batch was only done again
        self._before: TableFacts | None = None

    def run(self, facts: TableFacts | None) -> WriteOutcome:
        """Everything that has landed so far, in one or more batches, into the table that is there as `facts`.

        It may be called again after a lost race for a commit; the outcome tells what was loaded before that, too.
        """
        lake, spark, table = self._lake, self._spark, self._table
        batches, landing = self._batches, table.landing
        ledger = batches.ledger()
        # The log of another life of the table is reported before a file goes by it.
        arrived_batch(table, facts, ledger)
        retire_first(lake, table, batches, facts, self._tell)
        self._listing = {file.name: file for file in landed_files(lake.store, landing)}
        lying = {f"{landing.prefix}{name}" for name in self._listing}
        if not self._loaded:
            self._before = facts
        with session_confs(spark, {ANSI: "false"}):
            while True:
                unfinished = unfinished_batch(
                    lake, table, arrived_batch(table, facts, ledger), ledger, batches
                )
                plan = (
                    choose_batch([*self._listing.values()], ledger, landing, table.write)
                    if unfinished is None
                    else repeat_batch(unfinished)
                )
                pinned = pinned_table(table, ledger.columns, is_loaded=bool(ledger.last_taken))
                if plan.batch is None:
                    break
                facts = self._load_batch(pinned, plan, plan.batch, ledger, facts)
                ledger = batches.ledger()
        arrived = told_batch(table.key, facts)
        if self._loaded:
            clear_staged(lake.store, table.key)
            if landing.changes is not None:
                forget_replaced(lake.store, table.key, arrived=arrived)
        # Without this the rows are in the table and the manifests are whole; the next load folds.
        with suppress(Transient, Refused):
            batches.fold(lying=lying, arrived=arrived, now_ms=now_ms())
        return self._outcome(facts, plan.explanation)

    def _outcome(self, after: TableFacts | None, nothing_new: Explanation) -> WriteOutcome:
        files = [file for batch in self._loaded for file in batch.files]
        aside = tuple(each for batch in self._loaded for each in batch.set_aside)
        explanation = nothing_new
        if self._loaded:
            first, last = self._loaded[0].number, self._loaded[-1].number
            numbers = str(last) if first == last else f"{first} to {last}"
            quarantined_files = sum(each.is_quarantined for each in aside)
            explanation = self._reason.explain(
                files=len(files),
                bytes=sum(file.size_bytes for file in files),
                batch=numbers,
                set_aside=len(aside),
                names=names_in_parentheses([file.name for file in aside]),
            )
            if said := quarantine_sentence(
                self._table.key, lines=self._counts["rows_quarantined"], files=quarantined_files
            ):
                explanation = replace(explanation, more=f"; {said}")
        return replace(
            commit_rows.outcome_of(
                self._lake,
                self._spark,
                self._table,
                before=self._before,
                after=after,
                explanation=explanation,
                undeclared=[column.name for batch in self._loaded for column in batch.columns],
            ),
            **self._counts,
            files_read=len(files),
            set_aside=aside,
        )

    def _load_batch(
        self,
        table: Table,
        plan: BatchPlan,
        planned: Batch,
        ledger: Ledger,
        facts: TableFacts | None,
    ) -> TableFacts | None:
        """The table's facts after the planned batch, which has arrived, or is to be done again with fewer files."""
        lake, spark = self._lake, self._spark
        if plan.is_new:
            batch, lines = self._read_new(table, plan, planned, ledger, facts)
            table = pinned_table(table, batch.columns)
        else:
            batch = staged_again(lake.store, table.key, planned, table.landing)
            lines = _parsed(lake, spark, table, batch, ledger, facts)
        try:
            with session_confs(spark, confs_to_load(table, batch, facts)):
                after = _write(lake, spark, table, batch, lines, facts)
        except Exception as error:
            rows = RowsOfBatch(batch=batch, of=partial(_rows, lake, spark, table, lines))
            session = TableSession(lake=lake, spark=spark, table=table)
            names = without_poison_files(session, self._batches, rows, error).isolated[-1]
            self._tell(
                f"{table.key}: batch {batch.number}: the rows of {len(names)} files cannot be written; they are set aside"
            )
            return lake.facts(table.key)
        self._tell(
            f"{table.key}: batch {batch.number}: {len(batch.files)} files, {lines.row_count} rows; {plan.left} files wait"
        )
        if lines.changes is not None and batch.files and after is not None:
            self._counts["rows_superseded"] += superseded_count(
                lake, table, lines.changes, before=facts, after=after
            )
        self._counts.update(rows_quarantined=lines.bad_count, rows_rescued=lines.rescued_count)
        if plan.is_new or batch.isolated:  # it was not done again as it was planned
            self._reason = Reason.BATCH_READY
        self._loaded.append(batch)
        return after

    def _read_new(
        self,
        table: Table,
        plan: BatchPlan,
        planned: Batch,
        ledger: Ledger,
        facts: TableFacts | None,
    ) -> tuple[Batch, _Lines]:
        """The planned batch as it was read, its manifest written; what was read, or is gone, leaves the listing."""
        landing, is_overwrite = table.landing, isinstance(table.write, Overwrite)
        seen = ledger.seen
        known = {file.name: seen.get(f"{landing.prefix}{file.name}") for file in planned.files}
        staged = stage(
            self._lake.store,
            table.key,
            planned,
            landing,
            loaded={name: each.as_loaded for name, each in known.items() if each and each.is_taken},
            known=ledger.columns,
            reads_whole=is_overwrite,
        )
        batch = replace(staged.batch, columns=staged.columns)
        lines = _parsed(
            self._lake, self._spark, pinned_table(table, staged.columns), batch, ledger, facts
        )
        read = [
            (file, staged.files[file.name]) for file in planned.files if file.name in staged.files
        ]
        judged = [
            judge_file(file, known[file.name], found, is_overwrite=is_overwrite)
            for file, found in read
        ]
        batch = replace(batch, refused_count=lines.bad_count)
        batch = settle_batch(
            replace(plan, batch=batch), judged, row_count=lines.row_count, is_overwrite=is_overwrite
        )
        for name in (*staged.files, *staged.gone):
            del self._listing[name]
        if batch.files or batch.set_aside:
            self._batches.plan(batch)
        return batch, lines


def _parsed(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    ledger: Ledger,
    facts: TableFacts | None,
) -> _Lines:
    """The staged records of a batch, parsed, and held against their count and the columns of the table."""
    assert batch.part_count is not None and batch.record_count is not None
    if not batch.part_count:
        return _Lines(frame=None)
    added, changes = columns_in_force([*ledger.columns, *batch.columns], table.landing), None
    frame = _frame(lake, spark, table, batch, added)
    with session_confs(spark, confs_to_load(table, batch, facts)):
        if table.landing.changes is None:
            row_count, bad_count, rescued_count = count_lines(frame)
        else:
            session = TableSession(lake=lake, spark=spark, table=table)
            load = ChangeBatch(session=session, batch=batch, facts=facts)
            frame, changes = checked_changes(load, frame)
            row_count, bad_count, rescued_count = changes.rows, changes.bad, changes.rescued
    if row_count + bad_count != batch.record_count:
        raise Broken(
            f"load of {table.key}: of the {batch.record_count} staged record(s) of batch {batch.number} Spark found {row_count} row(s) and "
            f"{bad_count} others; nothing was written: look at _lakehouse/staged/{table.key}"
        )
    snapshot = None if facts is None else facts.snapshot
    frame = without_rescued(frame, added, rescued_count, snapshot)
    commit_rows.check_columns(_table_rows(table, frame), table, snapshot)
    return _Lines(
        frame=frame,
        added=added,
        row_count=row_count,
        bad_count=bad_count,
        rescued_count=rescued_count,
        changes=changes,
    )


def _frame(
    lake: Lake, spark: "SparkSession", table: Table, batch: Batch, added: Sequence[AddedColumn]
) -> "DataFrame":
    lines = staged_lines(lake, spark, table.key, batch)
    if table.landing.changes is None:
        return parse_records(table.landing, lines, added, commit_rows.partition_columns(table))
    return read_changes(table, lines, added)


def _rows(
    lake: Lake, spark: "SparkSession", table: Table, lines: _Lines, part: Batch
) -> "DataFrame":
    """The rows of some files of a batch with these lines, with the columns of the table."""
    assert lines.frame is not None
    frame = _frame(lake, spark, table, part, lines.added).select(
        *map(statements.quote, lines.frame.columns)
    )
    return _table_rows(table, frame)


def _table_rows(table: Table, frame: "DataFrame") -> "DataFrame":
    """The rows of parsed records, with the columns of the table."""
    return table_rows(frame) if table.landing.changes is None else changed_rows(frame, table)


def _write(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    lines: _Lines,
    facts: TableFacts | None,
) -> TableFacts | None:
    """Quarantine, then rows; the table's facts after it."""
    session = TableSession(lake=lake, spark=spark, table=table)
    take_out_landed_again(session, batch)
    quarantine(session, batch, lines.frame if lines.bad_count else None)
    if batch.isolated:
        quarantine_poison_files(session, batch)
    if not batch.files:
        if batch.quarantined and not quarantine_arrived(lake, table.key, batch):
            raise Broken(
                f"load of {table.key}: the files of batch {batch.number} were refused, and its quarantine does not tell of them"
            )
        return facts
    assert lines.frame is not None
    rows = _table_rows(table, lines.frame)
    facts = commit_rows.add_columns(lake, spark, table, rows, facts)
    if lines.changes is not None:
        session = TableSession(lake=lake, spark=spark, table=table)
        load = ChangeBatch(session=session, batch=batch, facts=facts)
        apply_changes(load, lines.frame, lines.changes)
    else:
        landed_bytes = sum(file.size_bytes for file in batch.files)
        rows = commit_rows.arranged(rows, table, landed_bytes, lines.row_count, facts)
        transaction = commit_rows.Transaction(app_id=ingest_app_id(table.key), version=batch.number)
        commit_rows.write_rows(lake, table, rows, transaction, facts=facts)
    after = lake.facts(table.key)
    row_count = None if lines.changes else lines.row_count
    check_arrived(lake, table, batch.number, row_count, before=facts, after=after)
    return after
