"""Landed files into a table, exactly once.

1. The landing prefix is listed, and held against the ledger of the batches before.
2. The next batch gets a number and a manifest. Those that were planned and did not arrive are done again first, with the same files.
3. Lines that are no rows go to the quarantine table, under the batch's number.
4. The rows go to the table, under the batch's number; with this commit the batch has arrived.
5. The same again, until nothing of the listing is left.

**Safety properties**
- Landed files are never moved, changed or deleted.
- A repeat of any step adds nothing: manifest, quarantine and rows each carry the number.
- A line becomes a row, or stands in quarantine with its reason. Left out are blank lines, and what follows a CSV header that is wrong:
  that header then stands in quarantine for its file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakehouse.core.errors import Broken
from lakehouse.core.ingest import Batch, LandedFile, Ledger, SetAside, choose_batch, find_unfinished, ingest_app_id
from lakehouse.core.outcome import WriteOutcome
from lakehouse.core.policy import MIB
from lakehouse.core.reason import Reason
from lakehouse.core.strategy_properties import OPTIMIZE_WRITE
from lakehouse.core.table import Landing, Overwrite, Table
from lakehouse.engine import rows
from lakehouse.engine.confs import ANSI, OPEN_COST, session_confs
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.lines import quarantined_lines, read_lines, table_rows
from lakehouse.engine.log_reader import TableFacts
from lakehouse.engine.strategy import apply_strategy, declared_properties

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OUTPUT_BYTES = 128 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One batch that arrived, and why it was done."""

    batch: Batch
    reason: Reason
    quarantined: int


def load(lake: Lake, spark: "SparkSession", table: Table) -> WriteOutcome:
    """Everything that has landed for `table` so far, in one or more batches; the caller holds the table's guard.

    Raises:
        Broken: a file of a batch that did not arrive is gone, or the manifest of one that did.
        Refused: the table that is there has other columns than its declaration.
    """
    landing = _landing(table)
    listing = _listing(lake, landing)
    before = apply_strategy(lake, spark, table, lake.facts(table.key))
    loaded: list[_Loaded] = []
    journal = Journal(lake.store)
    unreadable = lake.settings.unreadable_names
    with session_confs(spark, {ANSI: "false", OPEN_COST: "65536"}):
        while True:
            ledger = journal.ledger(table.key)
            arrived = _arrived(lake, table, ledger)
            unfinished = find_unfinished(ledger, table.write, arrived=arrived, read=partial(journal.batch, table.key))
            plan = choose_batch(listing, ledger, landing, table.write, unfinished=unfinished, unreadable=unreadable)
            if plan.batch is None:
                break
            if plan.is_new:
                journal.plan_batch(table.key, plan.batch)
            quarantined = _load_batch(lake, spark, table, plan.batch, listing) if plan.batch.files else 0
            loaded.append(_Loaded(batch=plan.batch, reason=plan.reason, quarantined=quarantined))
    reason, sentence = (plan.reason, plan.sentence) if not loaded else _told(loaded)
    outcome = rows.outcome_of(lake, spark, table, before=before, reason=reason, sentence=sentence)
    return replace(
        outcome,
        rows_quarantined=sum(each.quarantined for each in loaded),
        files_read=sum(len(each.batch.files) for each in loaded),
        set_aside=tuple(_set_aside(loaded)),
    )


def quarantine_key(table_key: str) -> str:
    """Where the lines lie that became no rows of a table."""
    return f"quarantine/{table_key}"


def quarantine_app_id(table_key: str) -> str:
    """The transaction id under which a batch's quarantined lines are written."""
    return f"lakehouse/quarantine/{table_key}"


def _arrived(lake: Lake, table: Table, ledger: Ledger) -> int:
    """The number of the last batch in the table, 0 if there is none."""
    facts = lake.facts(table.key)
    arrived = 0 if facts is None else facts.layout.transactions.get(ingest_app_id(table.key), 0)
    newest = 0 if ledger.newest is None else ledger.newest.number
    if arrived > newest:
        raise Broken(
            f"load of {table.key}: batch {arrived} is in the table, but the newest manifest below _lakehouse/ingest/{table.key} is "
            f"{newest}: what was loaded is no longer known; accepted: restore the manifests from a copy of the lake"
        )
    return arrived


def _load_batch(lake: Lake, spark: "SparkSession", table: Table, batch: Batch, listing: Sequence[LandedFile]) -> int:
    landing = _landing(table)
    _check_all_there(table, batch, listing)
    names = [f"{landing.prefix}{file.name}" for file in batch.files]
    lines = read_lines(spark, landing, root=lake.settings.spark_root, names=names)
    good = table_rows(lines, landing)
    facts = lake.facts(table.key)
    rows.check_shape(good, table, None if facts is None else facts.layout)
    bad = quarantined_lines(lines, batch=batch.number)
    quarantined = bad.count()
    if quarantined:
        rows.write_frame(
            bad,
            lake.settings.table_uri(quarantine_key(table.key)),
            mode="append",
            transaction=rows.Transaction(app_id=quarantine_app_id(table.key), version=batch.number),
        )
    rows.write_frame(
        good if _is_shuffled(facts) else _arranged(good, table, batch),
        lake.settings.table_uri(table.key),
        mode="overwrite" if isinstance(table.write, Overwrite) else "append",
        transaction=rows.Transaction(app_id=ingest_app_id(table.key), version=batch.number),
        partition_by=rows.partition_columns(table),
        properties=declared_properties(table),
    )
    return quarantined


def _is_shuffled(facts: TableFacts | None) -> bool:
    """Whether Delta arranges each batch itself, so that to do it here too would shuffle it twice."""
    return facts is not None and facts.layout.properties.get(OPTIMIZE_WRITE) == "true"


def _arranged(frame: "DataFrame", table: Table, batch: Batch) -> "DataFrame":
    """The rows so that a batch writes as few files as it can: one per partition, or one for each so many landed bytes."""
    by = rows.partition_columns(table)
    if by:
        return frame.repartition(*[frame[name] for name in by])
    return frame.coalesce(1 + sum(file.size_bytes for file in batch.files) // _OUTPUT_BYTES)


def _landing(table: Table) -> Landing:
    assert table.source is not None
    return table.source


def _listing(lake: Lake, landing: Landing) -> list[LandedFile]:
    return [
        LandedFile(name=file.name.removeprefix(landing.prefix), size_bytes=file.size_bytes, modified_ms=file.modified_ms)
        for file in lake.store.list(landing.prefix.rstrip("/"))
    ]


def _check_all_there(table: Table, batch: Batch, listing: Sequence[LandedFile]) -> None:
    there = {file.name for file in listing}
    if gone := [file.name for file in batch.files if file.name not in there]:
        raise Broken(
            f"load of {table.key}: batch {batch.number} was planned with {len(batch.files)} file(s) and did not reach the table, and "
            f"{len(gone)} of them are gone from landing, first {gone[0]!r}; accepted: put them back, the batch is then done again"
        )


def _told(loaded: Sequence[_Loaded]) -> tuple[Reason, str]:
    last = loaded[-1]
    files = [file for each in loaded for file in each.batch.files]
    numbers = str(last.batch.number) if len(loaded) == 1 else f"{loaded[0].batch.number} to {last.batch.number}"
    total = sum(file.size_bytes for file in files)
    return last.reason, last.reason.say(files=len(files), bytes=total, batch=numbers, set_aside=len(_set_aside(loaded)))


def _set_aside(loaded: Sequence[_Loaded]) -> list[SetAside]:
    return [aside for each in loaded for aside in each.batch.set_aside]
