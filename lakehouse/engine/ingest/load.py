"""Landed files into a table, exactly once.

1. Files that were loaded long ago leave the landing area, if the declaration says so (`engine.ingest.retire`). Later in the load a commit
   may have Delta clean up the log by which they go.
2. The landing prefix is listed, or the files are taken that the sensor found, and they are held against the ledger of the batches before.
3. The next batch gets a number. Its files are read once, each as it is now, and their records are staged.
4. The staged records are parsed and counted: each is a row, or has a reason why it is none.
5. The batch's manifest is written: its files as they were read, and those that are set aside with their reasons.
6. The records that are no rows go to the quarantine table, under the batch's number, and so do files that a person should look at.
7. The rows go to the table, under the batch's number; with this commit the batch has arrived. Its staged records are removed.
8. The same again, until nothing of the listing is left. A batch with a manifest that did not arrive is done again first, from step 6 on;
   so is one whose write failed for what is in some rows, without the files that hold them (`engine.quarantine.isolate`).
9. Where there are many manifests, they are folded into a segment (`engine.journal.landed_batches`).

**Safety properties**
- Landed files are moved and deleted in step 1 alone, and never changed.
- A repeat of any step adds nothing: manifest, quarantine and rows each carry the number.
- The records that are read are the rows and the quarantined records, counted before anything is written; the commit is held against them.
- A table that cannot tell which batches it holds is not loaded.
- A batch that does not arrive although it was written stops the load.
- An `Overwrite` replaces the table only by at least one row.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Overwrite, Table
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ingest.batches import Batch, BatchPlan, LandedFile, Ledger, choose_batch, ingest_app_id, judge_file, settle_batch
from lakehouse.core.ingest.inferred import pinned_table
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.ingest.undeclared import AddedColumn, columns_in_force
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.engine.changes.apply import apply_changes, changed_rows, superseded_count
from lakehouse.engine.changes.deleted_keys import forget_replaced, refuse_late
from lakehouse.engine.changes.read import ChangeCounts, change_keys, count_changes, read_changes
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.arrival import check_arrived, told_batch, unfinished_batch
from lakehouse.engine.ingest.parse_lines import count_lines, parse_records, staged_lines, table_rows
from lakehouse.engine.ingest.retire import retire_before_load
from lakehouse.engine.ingest.staging import clear_staged, stage, staged_again, staged_records
from lakehouse.engine.ingest.table_properties import declared_properties
from lakehouse.engine.ingest.undeclared_fields import missing_columns, without_rescued
from lakehouse.engine.ingest.work_size import confs_to_load
from lakehouse.engine.journal.landed_batches import LandedBatches, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.landing.handed_over import handed_over
from lakehouse.engine.quarantine.entries import quarantine, quarantine_arrived, quarantine_isolated
from lakehouse.engine.quarantine.isolate import Rows, isolate
from lakehouse.engine.quarantine.retry_lines import put_back
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.session_settings import ANSI, session_confs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

type_of_tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One batch that arrived, and why it was done; `superseded` are changes that took no effect."""

    batch: Batch
    reason: Reason
    lines: "_Lines"
    superseded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """The parsed records of a batch; `None` where it has no files. `added` are the columns that their undeclared fields have."""

    frame: "DataFrame | None"
    added: Sequence[AddedColumn] = ()
    row_count: int = 0
    bad_count: int = 0
    rescued_count: int = 0
    changes: ChangeCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """The next batch, the ledger that it was chosen by, where its manifest goes, and the table with the schema that is pinned."""

    table: Table
    plan: BatchPlan
    ledger: Ledger
    batches: LandedBatches


def load(
    lake: Lake, spark: "SparkSession", table: Table, facts: TableFacts | None, tell: type_of_tell, *, handed_batch: int | None
) -> WriteOutcome:
    """Everything that has landed for `table` so far, in one or more batches; `facts` is the table now, whose guard the caller holds.

    `tell` gets a sentence after each batch. What was handed over for `handed_batch` is loaded without a listing, without steps 1 and 9.

    Raises:
        Broken: the table does not tell which batches it holds, or a file of a batch that did not arrive is gone or changed.
        Refused: the table that is there has other columns than its declaration, or forgets which batches it holds.
    """
    landing, batches = table.landing, LandedBatches(lake.store, table.key, prefix=table.landing.prefix)
    facts = put_back(lake, spark, table, facts, ledger := batches.ledger(), tell)
    handed = None if handed_batch is None else handed_over(lake.store, table.key, landing, handed_batch, ledger.newest)
    if handed is None:  # else steps 1 and 9 would each list
        retire_before_load(lake, table, facts, batches, ledger, tell)
    listing = {file.name: file for file in (landed_files(lake.store, landing) if handed is None else handed)}
    lying = {f"{landing.prefix}{name}" for name in listing}
    before, loaded = facts, list[_Loaded]()
    with session_confs(spark, {ANSI: "false"}):
        while (planned := _plan(lake, table, batches, ledger, facts, [*listing.values()])).plan.batch is not None:
            done, facts = _load_batch(lake, spark, planned, facts, listing, tell)
            loaded += [] if done is None else [done]
            ledger = batches.ledger()
    arrived = told_batch(table.key, facts)
    if loaded:
        clear_staged(lake.store, table.key)
        if landing.changes is not None:
            forget_replaced(lake.store, table.key, arrived=arrived)
    if handed is None:
        with suppress(Transient, Refused):  # the rows are in the table, and the manifests are whole without it: the next load goes on
            batches.fold(lying=lying, arrived=arrived, now_ms=now_ms())
    explanation = _explain(loaded) if loaded else planned.plan.explanation
    outcome = commit_rows.outcome_of(lake, spark, table, before=before, after=facts, explanation=explanation)
    return replace(
        outcome,
        rows_quarantined=sum(each.lines.bad_count for each in loaded),
        rows_superseded=sum(each.superseded for each in loaded),
        rows_rescued=sum(each.lines.rescued_count for each in loaded),
        columns_added=tuple(column.name for each in loaded for column in each.batch.columns),
        files_read=sum(len(each.batch.files) for each in loaded),
        set_aside=tuple(aside for each in loaded for aside in each.batch.set_aside),
    )


def _plan(
    lake: Lake, table: Table, batches: LandedBatches, ledger: Ledger, facts: TableFacts | None, listing: Sequence[LandedFile]
) -> _Planned:
    unfinished = unfinished_batch(lake, table, facts, ledger, batches)
    plan = choose_batch(listing, ledger, table.landing, table.write, unfinished=unfinished)
    table = pinned_table(table, ledger.columns, is_loaded=bool(ledger.last_taken))
    return _Planned(table=table, plan=plan, ledger=ledger, batches=batches)


def _load_batch(
    lake: Lake, spark: "SparkSession", planned: _Planned, facts: TableFacts | None, listing: dict[str, LandedFile], tell: type_of_tell
) -> tuple[_Loaded | None, TableFacts | None]:
    """The planned batch as it arrived, `None` if it is to be done again with fewer files; the table's facts after it."""
    table = planned.table
    if planned.plan.is_new:
        batch, lines = _read_new(lake, spark, table, planned, facts, listing)
        table = pinned_table(table, batch.columns)
    else:
        assert planned.plan.batch is not None
        batch = staged_again(lake.store, table.key, planned.plan.batch, table.landing)
        lines = _parsed(lake, spark, table, batch, planned.ledger, facts)
    try:
        with session_confs(spark, confs_to_load(table, batch, facts)):
            after = _write(lake, spark, table, batch, lines, facts)
    except Exception as error:
        rows = Rows(batch=batch, of=partial(_rows, lake, spark, table, lines))
        smaller = isolate(lake, spark, table, planned.batches, rows, error)
        tell(f"{table.key}: batch {batch.number}: the rows of {len(smaller.isolated[-1])} files cannot be written; they are set aside")
        return None, lake.facts(table.key)
    tell(f"{table.key}: batch {batch.number}: {len(batch.files)} files, {lines.row_count} rows; {planned.plan.left} files wait")
    superseded = 0
    if lines.changes is not None and batch.files and after is not None:
        superseded = superseded_count(lake, table, lines.changes, before=facts, after=after)
    reason = Reason.BATCH_READY if batch.isolated else planned.plan.reason  # it is not done again as it was
    return _Loaded(batch=batch, reason=reason, lines=lines, superseded=superseded), after


def _read_new(
    lake: Lake, spark: "SparkSession", table: Table, planned: _Planned, facts: TableFacts | None, listing: dict[str, LandedFile]
) -> tuple[Batch, _Lines]:
    """The planned batch as it was read, its manifest written; what was read, or is gone, leaves the listing."""
    plan, landing, is_overwrite = planned.plan, table.landing, isinstance(table.write, Overwrite)
    assert plan.batch is not None
    known = {file.name: planned.ledger.seen.get(f"{landing.prefix}{file.name}") for file in plan.batch.files}
    loaded_as = planned.batches.loaded_as(plan.batch.files, planned.ledger)
    staged = stage(lake.store, table.key, plan.batch, landing, loaded_as=loaded_as, known=planned.ledger.columns)
    columns = (*staged.inferred, *staged.new.columns(now_ms()))
    batch = replace(plan.batch, part_count=staged.part_count, record_count=staged.record_count, columns=columns, shape=staged.shape)
    table = pinned_table(table, staged.inferred)
    lines = _parsed(lake, spark, table, batch, planned.ledger, facts)
    read = [(file, staged.files[file.name]) for file in plan.batch.files if file.name in staged.files]
    judged = [judge_file(file, known[file.name], found, is_overwrite=is_overwrite) for file, found in read]
    batch = replace(batch, refused_count=lines.bad_count)
    batch = settle_batch(replace(plan, batch=batch), judged, row_count=lines.row_count, is_overwrite=is_overwrite)
    for name in (*staged.files, *staged.gone):
        del listing[name]
    if batch.files or batch.set_aside:
        planned.batches.plan(batch)
    return batch, lines


def _parsed(lake: Lake, spark: "SparkSession", table: Table, batch: Batch, ledger: Ledger, facts: TableFacts | None) -> _Lines:
    """The staged records of a batch, parsed and counted.

    Raises:
        Broken: they are not as many as were staged.
        Refused: the table that is there has other columns than its declaration.
    """
    assert batch.part_count is not None and batch.record_count is not None
    if not batch.part_count:
        return _Lines(frame=None)
    added, changes = columns_in_force([*ledger.columns, *batch.columns], table.landing), None
    frame = _frame(lake, spark, table, batch, added)
    with session_confs(spark, confs_to_load(table, batch, facts)):
        if table.landing.changes is None:
            row_count, bad_count, rescued_count = count_lines(frame)
        else:
            frame = refuse_late(lake, spark, table, batch, frame, facts)
            changes = count_changes(frame, change_keys(table))
            row_count, bad_count, rescued_count = changes.rows, changes.bad, changes.rescued
    if row_count + bad_count != batch.record_count:
        raise Broken(
            f"load of {table.key}: of the {batch.record_count} staged record(s) of batch {batch.number} Spark found {row_count} row(s) and "
            f"{bad_count} others; nothing was written: look at _lakehouse/staged/{table.key}"
        )
    snapshot = None if facts is None else facts.snapshot
    frame = without_rescued(frame, added, rescued_count, snapshot)
    shape = table_rows(frame) if changes is None else changed_rows(frame, table)
    commit_rows.check_shape(shape, table, snapshot, new=missing_columns(shape, added, snapshot))
    return _Lines(frame=frame, added=added, row_count=row_count, bad_count=bad_count, rescued_count=rescued_count, changes=changes)


def _frame(lake: Lake, spark: "SparkSession", table: Table, batch: Batch, added: Sequence[AddedColumn]) -> "DataFrame":
    staged = staged_records(lake.settings.spark_root, table.key, batch)
    if table.landing.changes is None:
        return parse_records(table.landing, staged_lines(spark, staged), added, commit_rows.partition_columns(table))
    return read_changes(spark, table, staged, added)


def _rows(lake: Lake, spark: "SparkSession", table: Table, lines: _Lines, part: Batch) -> "DataFrame":
    """The rows of some files of a batch with these lines, with the columns of the table."""
    assert lines.frame is not None
    frame = _frame(lake, spark, table, part, lines.added).select(*map(statements.quote, lines.frame.columns))
    return table_rows(frame) if lines.changes is None else changed_rows(frame, table)


def _write(lake: Lake, spark: "SparkSession", table: Table, batch: Batch, lines: _Lines, facts: TableFacts | None) -> TableFacts | None:
    """Quarantine, then rows; the table's facts after it."""
    quarantine(lake, spark, table, batch, lines.frame if lines.bad_count else None)
    if batch.isolated:
        quarantine_isolated(lake, spark, table.key, batch)
    if not batch.files:
        if batch.quarantined and not quarantine_arrived(lake, table.key, batch):
            raise Broken(f"load of {table.key}: the files of batch {batch.number} were refused, and its quarantine does not tell of them")
        return facts
    assert lines.frame is not None
    if facts is not None and (missing := missing_columns(lines.frame, lines.added, facts.snapshot)):
        spark.sql(statements.add_columns(facts.snapshot.uri, missing))
        facts = lake.facts(table.key)
    if lines.changes is not None:
        apply_changes(lake, spark, table, batch, lines.frame, lines.changes, facts)
    else:
        _write_rows(lake, table, batch, lines, facts)
    after = lake.facts(table.key)
    check_arrived(lake, table, batch.number, None if lines.changes else lines.row_count, before=facts, after=after)
    return after


def _write_rows(lake: Lake, table: Table, batch: Batch, lines: _Lines, facts: TableFacts | None) -> None:
    assert lines.frame is not None
    good = table_rows(lines.frame)
    commit_rows.write_frame(
        commit_rows.arranged(good, table, sum(file.size_bytes for file in batch.files), lines.row_count, facts),
        lake.settings.table_uri(table.key),
        mode="overwrite" if isinstance(table.write, Overwrite) else "append",
        transaction=commit_rows.Transaction(app_id=ingest_app_id(table.key), version=batch.number),
        partition_by=commit_rows.partition_columns(table),
        properties=declared_properties(table),
    )


def _explain(loaded: Sequence[_Loaded]) -> Explanation:
    last = loaded[-1]
    files = [file for each in loaded for file in each.batch.files]
    numbers = str(last.batch.number) if len(loaded) == 1 else f"{loaded[0].batch.number} to {last.batch.number}"
    total = sum(file.size_bytes for file in files)
    return last.reason.explain(files=len(files), bytes=total, batch=numbers, set_aside=sum(len(each.batch.set_aside) for each in loaded))
