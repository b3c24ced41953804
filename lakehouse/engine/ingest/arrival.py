"""The landed batches that a table holds, as its own log tells it.

**Safety properties** (tests in `test_arrival.py`)
- A table whose log does not show its batches is not loaded: whether its rows are there is not
  guessed.
- A commit without its batch's number, or with another row count than the batch, stops the load.
"""

from typing import TYPE_CHECKING

from lakehouse.core.declaration.schema_changes import NEW_KEY
from lakehouse.core.declaration.table import TRANSACTION_RETENTION, Table
from lakehouse.core.delta.commits import Commit
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.batches import Batch, Ledger, ingest_app_id
from lakehouse.core.ingest.ledger_segments import find_unfinished
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.quarantine.entries import quarantine_arrived
from lakehouse.engine.journal.planned_batches import PlannedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def arrived_batch(table: Table, facts: TableFacts | None, ledger: Ledger) -> int:
    """The number of the last batch in the table, 0 if there is none.

    Raises:
        Broken: the table is there and does not tell it, or tells one that no manifest has.
        Refused: the table has a property that lets Delta forget it.
    """
    if facts is None:
        return 0
    newest = 0 if ledger.newest is None else ledger.newest.number
    if retention := facts.snapshot.properties.get(TRANSACTION_RETENTION):
        raise Refused(
            f"load of {table.key}: its property {TRANSACTION_RETENTION} is {retention!r}, with which Delta forgets the batches that it "
            f"holds; accepted: ALTER TABLE … UNSET TBLPROPERTIES ('{TRANSACTION_RETENTION}')"
        )
    arrived = facts.snapshot.transactions.get(ingest_app_id(table.key))
    if arrived is None and not ledger.last_taken and facts.snapshot.file_count:
        raise Broken(
            f"load of {table.key}: the table has rows, but its log has no transaction id of a landed batch, and none is known: was it "
            "renamed, or copied? Accepted: to move its folders below _lakehouse/ingest and _lakehouse/deleted_keys to "
            f"{table.key}, too, then lakehouse landing {table.key} --arrived N; or --arrived 0, if it holds no row of what lies in "
            f"{table.landing.prefix}"
        )
    if arrived is None and ledger.last_taken:
        raise Broken(
            f"load of {table.key}: the table is there, but its log has no transaction id of a landed batch, and {newest} batch(es) were "
            f"planned: the table was replaced from somewhere else. Run lakehouse landing {table.key} --arrived N, where the table holds the "
            "rows of batches 1 to N (0: of none)"
        )
    if arrived is not None and arrived > newest:
        raise Broken(
            f"load of {table.key}: batch {arrived} is in the table, but the newest manifest below _lakehouse/ingest/{table.key} is "
            f"{newest}: what was loaded is no longer known. Restore the manifests from a copy of the lake, or {NEW_KEY}"
        )
    return arrived or 0


def unfinished_batch(
    lake: Lake, table: Table, arrived: int, ledger: Ledger, batches: PlannedBatches
) -> Batch | None:
    """The batch to do again, by the last one that `arrived`: its rows are missing, or its files that nothing but quarantine gets."""
    unfinished, newest = (
        find_unfinished(ledger, table.write, arrived=arrived, read=batches.batch),
        ledger.newest,
    )
    if unfinished is None and newest is not None and not newest.files and newest.quarantined:
        return None if quarantine_arrived(lake, table.key, newest) else newest
    return unfinished


def told_batch(table_key: str, facts: TableFacts | None) -> int:
    """The number of the last batch that a table's log tells of, 0 where it tells none."""
    return 0 if facts is None else facts.snapshot.transactions.get(ingest_app_id(table_key), 0)


def batch_commits(
    lake: Lake, table: Table, *, before: TableFacts | None, after: TableFacts
) -> list[Commit]:
    """The commits between two readings of a table's log that brought it batches, oldest first."""
    commits = history_since(
        lake.store, after.history, -1 if before is None else before.snapshot.version
    ).commits
    return [commit for commit in commits if ingest_app_id(table.key) in commit.applications]


def check_arrived(
    lake: Lake,
    table: Table,
    number: int,
    rows: int | None,
    before: TableFacts | None,
    after: TableFacts | None,
) -> None:
    """Stops with `Broken` unless the log tells of the batch that was just written, with its rows; `None`: they are not counted."""
    arrived = told_batch(table.key, after)
    if after is None or arrived < number:
        raise Broken(
            f"load of {table.key}: batch {number} was written, but the table's log has batch {arrived} as its last: to go on would "
            f"write it again and again; look at {table.key}/_delta_log"
        )
    written = batch_commits(lake, table, before=before, after=after)
    counts = [
        int(commit.metrics["numOutputRows"])
        for commit in written
        if "numOutputRows" in commit.metrics
    ]
    if rows is not None and counts and counts[-1] != rows:
        raise Broken(
            f"load of {table.key}: batch {number} has {rows} row(s), but version {written[-1].version} of the table says "
            f"that {counts[-1]} were written; compare that version with the batch's files"
        )


def record_arrived(lake: Lake, spark: "SparkSession", table: Table, number: int) -> None:
    """One commit without rows, which says that the table holds the rows of all batches up to `number`; a person knows it.

    Raises:
        Refused: there is no table, it tells already which batches it holds, or no batch has this number.
    """
    with (
        translated(),
        hold(lake, spark, table.key, owner=f"arrival of batch {number} in {table.key}"),
    ):
        facts, ledger = (
            lake.facts(table.key),
            PlannedBatches(lake.store, table.key, prefix=table.landing.prefix).ledger(),
        )
        newest = 0 if ledger.newest is None else ledger.newest.number
        if facts is None:
            raise Refused(
                f"landing {table.key}: there is no table yet; accepted: lakehouse materialize {table.key}"
            )
        if (known := facts.snapshot.transactions.get(ingest_app_id(table.key))) is not None:
            raise Refused(
                f"landing {table.key}: its log tells that it holds the batches up to {known}; accepted: to leave that as it is"
            )
        if not 0 <= number <= newest:
            raise Refused(
                f"landing {table.key}: --arrived is {number}; accepted: 0 to {newest}, the batches that were planned"
            )
        transaction = commit_rows.Transaction(app_id=ingest_app_id(table.key), version=number)
        commit_rows.record_transaction(spark, facts.snapshot.uri, transaction)
