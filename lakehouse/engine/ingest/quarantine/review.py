"""Shows the quarantine of a landed table, and settles entries that a person has handled.

**Safety properties** (tests in `test_retry.py`)
- Nothing is settled while a batch is unfinished, since that batch may write the same entries again.
- Settled entries are removed in a commit that records the reason. The landed file is kept.
"""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import written_in
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.batches import Ledger
from lakehouse.core.ingest.outcome import QuarantineAccount, QuarantineReview
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest.loaded_batches import last_loaded, unfinished_batch
from lakehouse.engine.ingest.quarantine.entries import quarantine_key
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.temporary_confs import READ_WHOLE, USER_METADATA, session_confs
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SHOWN_REASONS = 20


def account_of(lake: Lake, table: Table) -> QuarantineAccount | None:
    """The number of entries in a quarantine, and of entries that were settled or retried.

    The latter are counted in the commits that the quarantine's log still has. `None` if nothing was
    ever quarantined.
    """
    facts = lake.facts(quarantine_key(table.key))
    if facts is None:
        return None
    commits = history_since(lake.store, facts.history, -1).commits
    totals = {"settled": 0, "retried": 0}
    for commit in commits:
        metadata = written_in(commit)
        for name in totals:
            count = metadata.get(name)
            if isinstance(count, int):
                totals[name] += count
    return QuarantineAccount(table=table.key, rows=facts.snapshot.row_count, **totals)


def show(session: TableSession, files: Sequence[str], *, limit: int) -> dict[str, Any]:
    """The most frequent reasons, and up to `limit` entries, those of the newest batches first.

    `files` are paths of landed files; only their entries count. If it is empty, all count.

    Raises:
        Refused: nothing was ever quarantined.
    """
    with translated():
        entries = selected_entries(session, quarantine_facts(session), files)
        reasons = (
            entries.groupBy("reason")
            .count()
            .orderBy(F.desc("count"), "reason")
            .limit(_SHOWN_REASONS)
            .collect()
        )
        newest = entries.orderBy(F.desc("batch"), "source_file", "line").limit(limit)
        time_ms = F.unix_millis("quarantined_at").alias("quarantined_ms")
        rows = newest.select("source_file", "line", "reason", "raw", "batch", time_ms).collect()
    return {
        "table": session.key,
        "reasons": [row.asDict() for row in reasons],
        "entries": [row.asDict() for row in rows],
    }


def settle(
    session: TableSession, files: Sequence[str], *, why: str, dry_run: bool
) -> QuarantineReview:
    """Removes entries that a person has handled. With `dry_run`, only counts them.

    `files` are paths of landed files; only their entries are removed. If it is empty, all are.

    Raises:
        Refused: `why` is empty, nothing was ever quarantined, or a batch is unfinished.
    """
    lake = session.lake
    spark = session.spark
    table = session.table
    if not why.strip():
        raise Refused(f"quarantine {table.key}: --why is empty. Use --why to record what was done")
    guard = (
        nullcontext()
        if dry_run
        else hold(lake, spark, table.key, owner=f"settling of the quarantine of {table.key}")
    )
    with translated(), guard, session_confs(spark, READ_WHOLE):
        facts = quarantine_facts(session)
        finished_ledger(session, PlannedBatches(lake.store, table.key, prefix=table.landing.prefix))
        total, lines, newest_batch = (
            selected_entries(session, facts, files)
            .selectExpr("count(*)", "count(line)", "coalesce(max(batch), 0)")
            .collect()[0]
        )
        if total and not dry_run:
            metadata = json.dumps({"settled": total, "why": why.strip()})
            with session_confs(spark, {USER_METADATA: metadata}):
                uri = facts.snapshot.uri
                spark.sql(statements.delete_lines(uri, upto_batch=newest_batch, source_files=files))
    return QuarantineReview(
        table=table.key, dry_run=dry_run, lines=lines, files=total - lines, settled=total, left={}
    )


def selected_entries(session: TableSession, facts: TableFacts, files: Sequence[str]) -> "DataFrame":
    """The quarantine's entries of these landed `files` (paths), or all entries without `files`."""
    entries = table_at(session.spark, facts.snapshot)
    return entries.where(entries["source_file"].isin(*files)) if files else entries


def quarantine_facts(session: TableSession) -> TableFacts:
    """The facts of a table's quarantine.

    Raises:
        Refused: nothing was ever quarantined.
    """
    facts = session.lake.facts(quarantine_key(session.key))
    if facts is None:
        raise Refused(
            f"quarantine {session.key}: nothing was ever quarantined. "
            "Use a table that `lakehouse quarantine list` shows"
        )
    return facts


def finished_ledger(session: TableSession, batches: PlannedBatches) -> Ledger:
    """The ledger of a table, which must have no unfinished batch.

    Raises:
        Refused: a batch is unfinished.
    """
    lake = session.lake
    table = session.table
    ledger = batches.ledger()
    loaded = last_loaded(table, lake.facts(table.key), ledger)
    unfinished = unfinished_batch(lake, table, loaded, ledger, batches)
    if unfinished is not None:
        raise Refused(
            f"quarantine {table.key}: batch {unfinished.number} is unfinished and may still write "
            f"entries. Use `lakehouse materialize {table.key}`, or wait for the running load. Then "
            "repeat this command"
        )
    return ledger
