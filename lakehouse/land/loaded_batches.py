"""Reads from a table's own log which landed batches were loaded. A person can record it there, too.

**Safety properties** (tests in `test_loaded_batches.py`)
- The load stops if the table's log does not show which batches were loaded. This is never guessed.
- After a write, the load stops if the log lacks the batch's number, or shows another row count than
  the batch has. (Rows of change data are merged, so they are not compared.)
"""

from hashlib import blake2b

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.text import count_of
from lakehouse.declare.table import TRANSACTION_RETENTION, Table
from lakehouse.delta.commits import Commit, ingest_app_id
from lakehouse.delta.log import TableFacts, history_since
from lakehouse.evolve.plan.changes import NEW_KEY
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.land.ledger import PlannedBatches
from lakehouse.land.plan.batches import Batch, Ledger, find_unfinished
from lakehouse.spark import delta_writes
from lakehouse.spark.delta_writes import FrameWrite, Transaction
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import table_at


def last_loaded(table: Table, facts: TableFacts | None, ledger: Ledger) -> int:
    """The number of the last batch that the table's log records; 0 without a table or a batch.

    Raises:
        Broken: the log records no batch, although the table has files or a batch with files was
            planned; or the log records a newer batch than the newest manifest.
        Refused: a property of the table lets Delta forget batches.
    """
    if facts is None:
        return 0
    newest = ledger.newest_number
    retention = facts.snapshot.properties.get(TRANSACTION_RETENTION)
    if retention:
        raise Refused(
            f"load of {table.key}: with table property {TRANSACTION_RETENTION} = {retention!r}, "
            "Delta forgets which batches were loaded. Use ALTER TABLE … UNSET TBLPROPERTIES "
            f"('{TRANSACTION_RETENTION}')"
        )
    loaded = facts.snapshot.transactions.get(ingest_app_id(table.key))
    if loaded is None and not ledger.last_taken and facts.snapshot.file_count:
        raise Broken(
            f"load of {table.key}: the table has rows, but its log has no transaction id of a "
            "landed batch, and no manifest has files to load. If the table was renamed or copied: "
            "1. Rename its folders below _lakehouse/ingest and _lakehouse/deleted_keys to "
            f"{table.key}, too. 2. Use `lakehouse landing {table.key} --arrived N`, where N is the "
            "last batch whose rows the table has. If the table has no row of the files in "
            f"{table.landing.prefix}, use --arrived 0"
        )
    if loaded is None and ledger.last_taken:
        raise Broken(
            f"load of {table.key}: the table's log has no transaction id of a landed batch, but "
            f"batches up to {newest} were planned, so the table was replaced by another one. Use "
            f"`lakehouse landing {table.key} --arrived N`, where N is the last batch whose rows "
            "the table has (0 if it has no row of these batches)"
        )
    if loaded is not None and loaded > newest:
        raise Broken(
            f"load of {table.key}: batch {loaded} is in the table, but the newest manifest below "
            f"_lakehouse/ingest/{table.key} is {newest}, so the loaded files are unknown. Either "
            f"restore the manifests from a copy of the lake, or {NEW_KEY}"
        )
    return loaded or 0


def unfinished_batch(
    lake: Lake, table: Table, loaded: int, ledger: Ledger, batches: PlannedBatches
) -> Batch | None:
    """The planned batch to repeat, because its rows or quarantine entries are missing, or `None`.

    `loaded` is the number of the last batch in the table's log.
    """
    unfinished = find_unfinished(ledger, table.write, last_loaded_batch=loaded, read=batches.batch)
    newest = ledger.newest
    # A batch without files writes only quarantine entries, which the table's log does not show.
    if unfinished is None and newest is not None and not newest.files and newest.quarantined:
        return None if quarantine_has_files(lake, table.key, newest) else newest
    return unfinished


def last_in_log(table_key: str, facts: TableFacts | None) -> int:
    """The number of the last batch in a table's log, or 0. Unlike `last_loaded`, checks nothing."""
    return 0 if facts is None else facts.snapshot.transactions.get(ingest_app_id(table_key), 0)


def batch_commits(
    lake: Lake, table_key: str, *, before: TableFacts | None, after: TableFacts
) -> list[Commit]:
    """The commits that wrote batches after the version of `before`, up to `after`, oldest first."""
    version = -1 if before is None else before.snapshot.version
    commits = history_since(lake.store, after.history, version).commits
    return [commit for commit in commits if ingest_app_id(table_key) in commit.applications]


def check_loaded(
    lake: Lake,
    key: str,
    number: int,
    row_count: int | None,
    *,
    before: TableFacts | None,
    after: TableFacts | None,
) -> None:
    """Raises `Broken` unless a table's log shows the batch of this number, just written.

    Its row count (`None` for change data) is compared, too, if a commit since `before` records one.
    """
    loaded = last_in_log(key, after)
    if after is None or loaded < number:
        raise Broken(
            f"load of {key}: batch {number} was written, but the last batch in the table's "
            f"log is {loaded}. The load stops, since it would write the batch again and again. "
            f"Look at {key}/_delta_log"
        )
    commits = batch_commits(lake, key, before=before, after=after)
    row_counts = [
        int(commit.metrics["numOutputRows"])
        for commit in commits
        if "numOutputRows" in commit.metrics
    ]
    if row_count is not None and row_counts and row_counts[-1] != row_count:
        raise Broken(
            f"load of {key}: batch {number} has {count_of(row_count, 'row')}, but "
            f"version {commits[-1].version} of the table records "
            f"{count_of(row_counts[-1], 'written row')}. Compare that version with the batch's "
            "files"
        )


def record_loaded(session: TableSession, number: int) -> None:
    """Records in the table's log that the table has the rows of all batches up to `number`.

    The caller must be sure of this, because it is not checked. The commit adds no rows.

    Raises:
        Refused: there is no table, its log already shows a batch, or `number` is not between 0 and
            the number of the newest planned batch.
    """
    lake = session.lake
    spark = session.spark
    table = session.table
    owner = f"arrival of batch {number} in {table.key}"
    with translated(), hold(lake, spark, table.key, owner=owner):
        facts = lake.facts(table.key)
        ledger = PlannedBatches(lake.store, table.key, prefix=table.landing.prefix).ledger()
        newest = ledger.newest_number
        if facts is None:
            raise Refused(
                f"landing {table.key}: there is no table yet. Use `lakehouse materialize "
                f"{table.key}`"
            )
        recorded_batch = facts.snapshot.transactions.get(ingest_app_id(table.key))
        if recorded_batch is not None:
            raise Refused(
                f"landing {table.key}: the log already records batch {recorded_batch} as the "
                "last one loaded. Nothing to do"
            )
        if not 0 <= number <= newest:
            raise Refused(
                f"landing {table.key}: --arrived is {number}. Use 0 to {newest}, the numbers of "
                "the planned batches"
            )
        transaction = Transaction(app_id=ingest_app_id(table.key), version=number)
        no_rows = table_at(spark, facts.snapshot).limit(0)
        write = FrameWrite(mode="append", transaction=transaction)
        delta_writes.write_frame(no_rows, facts.snapshot.uri, write)


def quarantine_key(table_key: str) -> str:
    """The key of a table's quarantine."""
    return f"quarantine/{table_key}"


def quarantine_app_id(table_key: str) -> str:
    """The txnAppId under which a table's quarantine records batches."""
    return f"lakehouse/quarantine/{table_key}"


def quarantine_has_files(lake: Lake, table_key: str, batch: Batch) -> bool:
    """Whether the quarantine records the files of a batch that loads no rows."""
    facts = lake.facts(quarantine_key(table_key))
    if facts is None:
        return False
    return files_transaction(table_key, batch).app_id in facts.snapshot.transactions


def quarantined_count(lake: Lake, table_key: str) -> int | None:
    """The number of entries in a table's quarantine; `None` if its log does not record it."""
    facts = lake.facts(quarantine_key(table_key))
    return 0 if facts is None else facts.snapshot.row_count


def files_transaction(table_key: str, batch: Batch) -> delta_writes.Transaction:
    """The transaction of a batch's quarantined files.

    It identifies the files themselves, since a new ledger gives the same number to other files.
    """
    files = [
        (file.name, file.size_bytes, file.modified_ms, file.digest) for file in batch.quarantined
    ]
    content = repr(files).encode("utf-8", "surrogateescape")
    mark = blake2b(content, digest_size=8).hexdigest()
    return delta_writes.Transaction(
        app_id=f"{quarantine_app_id(table_key)}/{batch.number}-{mark}", version=1
    )
