"""A person's work on the quarantine of a landed table: to have it read again, or to say that it was taken care of.

Lines are read again as `engine.quarantine.retry_lines` tells, and files so:

1. A manifest says that they are to be read again; the next load takes them as if they had just landed.
2. They are taken out of the quarantine. What the load finds wrong with them now goes there anew.

**Safety properties** (tests in `test_review.py`)
- Nothing is read again while a batch is not done: what that batch still writes would be there
  twice, or be missed.
- Settled entries leave the quarantine in a commit that says who took care of them, and how. The
  landed file stays where it is.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import written_in
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.batches import Batch, SetAside
from lakehouse.core.ingest.outcome import QuarantineAccount, QuarantineReview
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest.arrival import arrived_batch, unfinished_batch
from lakehouse.engine.ingest.work_size import confs_to_retry
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.quarantine.entries import entries_at, quarantine_key, take_out_files
from lakehouse.engine.quarantine.retry_lines import QuarantineFacts, put_back, retry_lines
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.session_settings import ANSI, READ_WHOLE, USER_METADATA, session_confs
from lakehouse.engine.store import StoredFile
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN_REASONS = 20


def account_of(lake: Lake, table: Table) -> QuarantineAccount | None:
    """The facts of a table's quarantine; `None` if nothing was ever refused."""
    facts = lake.facts(quarantine_key(table.key))
    if facts is None:
        return None
    written = [
        written_in(commit) for commit in history_since(lake.store, facts.history, -1).commits
    ]
    told = {
        name: sum(count for each in written if isinstance(count := each.get(name), int))
        for name in ("settled", "retried")
    }
    return QuarantineAccount(table=table.key, rows=facts.snapshot.row_count, **told)


def show(
    lake: Lake, spark: "SparkSession", table: Table, files: Sequence[str], *, limit: int
) -> dict[str, Any]:
    """The content of a table's quarantine: how much of each reason, and the newest `limit` lines and files.

    Raises:
        Refused: it holds nothing.
    """
    with translated():
        held = _held(spark, _facts(lake, table), files)
        reasons = (
            held.groupBy("reason")
            .count()
            .orderBy(F.desc("count"), "reason")
            .limit(_SHOWN_REASONS)
            .collect()
        )
        newest = held.orderBy(F.desc("batch"), "source_file", "line").limit(limit)
        at = F.unix_millis("quarantined_at").alias("quarantined_ms")
        rows = newest.select("source_file", "line", "reason", "raw", "batch", at).collect()
    return {
        "table": table.key,
        "reasons": [row.asDict() for row in reasons],
        "entries": [row.asDict() for row in rows],
    }


def settle(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    files: Sequence[str],
    *,
    why: str,
    dry_run: bool,
) -> QuarantineReview:
    """Takes lines and files out of a table's quarantine, since a person took care of them; `files` are theirs, none means all.

    Raises:
        Refused: there is no reason, nothing is there, or a batch is not done, which would put there again what is taken out.
    """
    if not why.strip():
        raise Refused(f"quarantine {table.key}: --why is empty; accepted: what was done about it")
    guard = (
        nullcontext()
        if dry_run
        else hold(lake, spark, table.key, owner=f"settling of the quarantine of {table.key}")
    )
    with translated(), guard, session_confs(spark, READ_WHOLE):
        facts = _known(lake, table).quarantine
        held = _held(spark, facts, files)
        total, lines, upto = _counts(held)
        if total and not dry_run:
            with session_confs(
                spark, {USER_METADATA: json.dumps({"settled": total, "why": why.strip()})}
            ):
                spark.sql(
                    statements.delete_lines(facts.snapshot.uri, upto_batch=upto, source_files=files)
                )
    return QuarantineReview(
        table=table.key, dry_run=dry_run, lines=lines, files=total - lines, settled=total, left={}
    )


def retry(
    lake: Lake, spark: "SparkSession", table: Table, files: Sequence[str], *, dry_run: bool
) -> QuarantineReview:
    """Reads lines again as the table is declared now, and has the next load read files again; `files` are theirs, none means all.

    Raises:
        Refused: nothing is there, a batch is not done, or the table that is there has other columns than its declaration.
        Broken: the table has fewer of the lines than were written into it.
    """
    guard = (
        nullcontext()
        if dry_run
        else hold(lake, spark, table.key, owner=f"a retry of the quarantine of {table.key}")
    )
    with translated(), guard, session_confs(spark, {ANSI: "false", **READ_WHOLE}):
        known = _known(lake, table)
        if (
            not dry_run
            and put_back(lake, spark, table, known.target, known.ledger, lambda _: None)
            is not known.target
        ):
            known = _known(lake, table)
        with session_confs(spark, confs_to_retry(known.quarantine, known.target)):
            held = _held(spark, known.quarantine, files)
            total, lines, _ = _counts(held)
            left = (
                _retry_files(lake, spark, table, known, held.where("line IS NULL"), dry_run=dry_run)
                if total > lines
                else {}
            )
            review = QuarantineReview(
                table=table.key,
                dry_run=dry_run,
                lines=lines,
                files=total - lines - sum(left.values()),
                left=left,
            )
            return (
                retry_lines(lake, spark, table, known, held.where("line IS NOT NULL"), review)
                if lines
                else review
            )


def _retry_files(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    known: QuarantineFacts,
    held: "DataFrame",
    *,
    dry_run: bool,
) -> dict[str, int]:
    """Has the files that can be read again read again; how many cannot, by reason."""
    landing, left, again = table.landing, Counter[str](), list[StoredFile]()
    for path, count in held.groupBy("source_file").count().collect():
        seen, file = known.ledger.seen.get(path), lake.store.stat(path)
        if file is None or not path.startswith(landing.prefix):
            left[f"the file is gone from {landing.prefix}"] += count
        elif seen is None or seen.is_taken:
            why = "its rows were loaded: land only what is new, under a new name"
            left[why] += count
        else:
            again.append(file)
    if again and not dry_run:
        # Of another time than the file's, so that the file is new to the next load.
        sizes, why = (
            {file.name.removeprefix(landing.prefix): file.size_bytes for file in again},
            "it is to be read again",
        )
        aside = tuple(
            SetAside(name=name, size_bytes=size, why=why, modified_ms=-1)
            for name, size in sizes.items()
        )
        newest = 0 if known.ledger.newest is None else known.ledger.newest.number
        known.batches.plan(
            Batch(number=newest + 1, files=(), set_aside=aside, prefix=landing.prefix)
        )
        names = [file.name for file in again]
        take_out_files(lake, spark, table.key, names, upto_batch=newest)
    return left


def _held(spark: "SparkSession", facts: TableFacts, files: Sequence[str]) -> "DataFrame":
    held = entries_at(spark, facts.snapshot)
    return held.where(held["source_file"].isin(*files)) if files else held


def _counts(held: "DataFrame") -> tuple[int, int, int]:
    """The counts of the entries and of the lines among them, and the last batch that put one there."""
    [(total, lines, upto)] = held.selectExpr(
        "count(*)", "count(line)", "coalesce(max(batch), 0)"
    ).collect()
    return total, lines, upto


def _known(lake: Lake, table: Table) -> QuarantineFacts:
    quarantine, target = _facts(lake, table), lake.facts(table.key)
    batches = LandedBatches(lake.store, table.key, prefix=table.landing.prefix)
    ledger = batches.ledger()
    if (
        batch := unfinished_batch(
            lake, table, arrived_batch(table, target, ledger), ledger, batches
        )
    ) is not None:
        raise Refused(
            f"quarantine {table.key}: batch {batch.number} is not done, and may yet write what would be read again or settled; accepted: "
            f"lakehouse materialize {table.key}, or to wait for the load that is under way, and then this"
        )
    return QuarantineFacts(quarantine=quarantine, target=target, batches=batches, ledger=ledger)


def _facts(lake: Lake, table: Table) -> TableFacts:
    facts = lake.facts(quarantine_key(table.key))
    if facts is None:
        raise Refused(
            f"quarantine {table.key}: nothing of it was ever refused; accepted: a table of lakehouse quarantine list"
        )
    return facts
