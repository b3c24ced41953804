"""The quarantine table of a landed table: records and files that could not be loaded, with reasons.

**Safety properties**
- A batch's entries are one commit under the batch's number. If the quarantine already has that
  number, only missing entries are added. A repeated batch therefore adds no entry twice, and a
  batch that is loaded again into a new table adds only records that were not refused before
  (`test_load.py`). If a repeated batch loads a record, the record's entry is removed
  (`long/test_renamed_columns.py`).
- The entry of a poison file (see `unwritable_files`) replaces the entries of the file's records in
  one commit. If both existed, a retry could load a record twice (`test_unwritable_files.py`).
- A batch that loads no rows is finished when a commit of the quarantine identifies exactly its
  files. The batch's number does not prove this: if the ledger was deleted, a new ledger gives the
  numbers in the quarantine to other files (`test_unwritable_files.py`, `test_load.py`).
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property, partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from lakehouse.core.declaration.landing import is_retried
from lakehouse.core.delta.commits import may_take_rows, written_in
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import Batch, SetAside
from lakehouse.core.ingest.records import Unreadable
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.ingest.parse_lines import quarantined_lines
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark import delta_writes, statements
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.frames import table_at, temporary_view
from lakehouse.engine.spark.temporary_confs import USER_METADATA, session_confs
from lakehouse.engine.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from lakehouse.core.ingest.retried_lines import RetriedLine

# The batch's number in a commit's metadata: not every commit of a batch has a transaction id.
_BATCH = "batch"
_SCHEMA = (
    "source_file STRING, line BIGINT, reason STRING, raw STRING, undeclared STRING, digest STRING"
)


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
    return _files_transaction(table_key, batch).app_id in facts.snapshot.transactions


def quarantined_count(lake: Lake, table_key: str) -> int | None:
    """The number of entries in a table's quarantine; `None` if its log does not record it."""
    facts = lake.facts(quarantine_key(table_key))
    return 0 if facts is None else facts.snapshot.row_count


def quarantined_batch(table_key: str, facts: TableFacts | None) -> int:
    """The number of the last batch in the log of a table's quarantine, or 0."""
    return 0 if facts is None else facts.snapshot.transactions.get(quarantine_app_id(table_key), 0)


class QuarantinedBatches:
    """The batch numbers in the log of a table's quarantine, read on first use.

    If the log no longer has its first commits, all batches before the first one in it are included.
    If a foreign commit (such as a RESTORE) may have removed entries, no earlier batch is included.
    """

    def __init__(self, lake: Lake, table_key: str, facts: TableFacts | None) -> None:
        self._lake = lake
        self._table_key = table_key
        self._facts = facts

    def __contains__(self, number: object) -> bool:
        return number in self._numbers

    @cached_property
    def _numbers(self) -> set[int]:
        if self._facts is None:
            return set()
        batch_numbers = set[int]()
        oldest_version = 0
        for commit in newest_first(self._lake.store, self._facts.history):
            numbers = (
                commit.applications.get(quarantine_app_id(self._table_key)),
                written_in(commit).get(_BATCH),
            )
            batch_numbers |= {number for number in numbers if isinstance(number, int)}
            oldest_version = commit.version
            if may_take_rows(commit):
                return batch_numbers
        if not oldest_version:
            return batch_numbers
        newest = quarantined_batch(self._table_key, self._facts)
        return batch_numbers | {*range(1, min(batch_numbers, default=newest + 1))}


def quarantine(session: TableSession, batch: Batch, lines: "DataFrame | None") -> None:
    """Writes the bad records of a batch (those in `lines` with a reason) and its quarantined files.

    A file's entry has no line number and no text. The caller holds the table's lock.
    """
    if lines is None and not batch.quarantined:
        return
    lake = session.lake
    spark = session.spark
    key = session.key
    facts = lake.facts(quarantine_key(key))
    is_repeated = quarantined_batch(key, facts) >= batch.number
    poison_names = {name for names in batch.isolated for name in names}
    # In a repeated batch, `quarantine_poison_files` adds the entries of poison files.
    added_later = poison_names if is_repeated else set[str]()
    files = [file for file in batch.quarantined if file.name not in added_later]
    if lines is None and not files:
        return
    rows = [(_path(batch, file), None, file.why, None, None, None) for file in files]
    entries = spark.createDataFrame(rows, _SCHEMA)
    if lines is not None:
        entries = quarantined_lines(lines).unionByName(entries)
    transaction = None
    # Delta skips a write under a number that the log already has.
    if not is_repeated:
        transaction = delta_writes.Transaction(app_id=quarantine_app_id(key), version=batch.number)
    if not batch.files and not batch.isolated:  # the batch loads no rows
        transaction = _files_transaction(key, batch)
    if facts is not None and (is_repeated or not batch.files):
        entries = missing_entries(spark, facts.snapshot, entries)
        is_recorded = batch.number in QuarantinedBatches(lake, key, facts)
        # An empty commit is written, too, if it is needed to record the batch.
        if entries.isEmpty() and transaction is None and is_recorded:
            return
    # Imported here, because most loads quarantine nothing.
    from lakehouse.core.ingest.retried_lines import csv_fields_text

    more_columns = {
        "batch": F.lit(batch.number).cast("bigint"),
        "quarantined_at": F.current_timestamp(),
        "fields": F.lit(csv_fields_text(session.table.landing)).cast("string"),
    }
    write = delta_writes.FrameWrite(
        mode="append",
        adds_columns=True,
        transaction=transaction,
        user_metadata=json.dumps({_BATCH: batch.number}),
    )
    uri = lake.settings.table_uri(quarantine_key(key))
    delta_writes.write_frame(entries.withColumns(more_columns), uri, write)


def quarantine_poison_files(session: TableSession, batch: Batch) -> None:
    """Replaces the entries for single lines of the batch's newest poison files.

    Each file gets one entry. `quarantine` must have been called for the batch.
    """
    facts = session.lake.facts(quarantine_key(session.key))
    assert facts is not None
    file_entries = [
        (_path(batch, file), file.why)
        for file in batch.quarantined
        if file.name in batch.isolated[-1]
    ]
    statement = partial(
        statements.replace_lines,
        facts.snapshot.uri,
        batch=batch.number,
        source_files=[path for path, _ in file_entries],
    )
    source = session.spark.createDataFrame(file_entries, "source_file STRING, reason STRING")
    transaction = _files_transaction(session.key, batch)
    delta_writes.run_merge(session.spark, source, facts.snapshot, transaction, statement)


def take_out_new_rows(session: TableSession, batch: Batch, lines: "DataFrame | None") -> None:
    """Removes the entries of a repeated batch's lines that the current declaration accepts.

    `lines` are the batch's parsed records, or `None` if all are accepted. The batch loads the
    accepted lines, and a retry would load them a second time.
    """
    spark = session.spark
    facts = session.lake.facts(quarantine_key(session.key))
    if facts is None or quarantined_batch(session.key, facts) < batch.number:
        return
    names = [(f"{batch.prefix}{file.name}", file.digest) for file in batch.files]
    files = spark.createDataFrame(names, "source_file STRING, digest STRING")
    entries = table_at(spark, facts.snapshot).where(f"batch = {batch.number} AND line IS NOT NULL")
    rows = entries.join(files, files.columns, "left_semi").select("source_file", "line", "digest")
    if lines is not None:
        rows = rows.join(quarantined_lines(lines), rows.columns, "left_anti")
    if rows.isEmpty():
        return
    metadata = {USER_METADATA: json.dumps({_BATCH: batch.number})}
    with temporary_view(spark, rows) as view, session_confs(spark, metadata):
        spark.sql(statements.delete_landed_again(facts.snapshot.uri, view))


def take_out_files(session: TableSession, files: Sequence[str], *, upto_batch: int) -> None:
    """Removes the entries for whole `files` (paths) that batches up to `upto_batch` added."""
    facts = session.lake.facts(quarantine_key(session.key))
    if facts is None:
        return
    statement = statements.delete_lines(
        facts.snapshot.uri, upto_batch=upto_batch, source_files=files, whole_files=True
    )
    with session_confs(session.spark, {USER_METADATA: json.dumps({"retried": len(files)})}):
        session.spark.sql(statement)


def take_out_landed_again(session: TableSession, batch: Batch) -> None:
    """Removes the lines that `lakehouse quarantine retry` wrote to files of this batch."""
    retried = [f"{batch.prefix}{file.name}" for file in batch.files if is_retried(file.name)]
    take_out_lines(session, lines_landed_again(session.lake.store, retried))


def take_out_lines(session: TableSession, lines: "Sequence[RetriedLine]") -> None:
    """Removes these lines from the quarantine. The caller has written them to a landed file."""
    if not lines:
        return
    facts = session.lake.facts(quarantine_key(session.key))
    if facts is None:
        return
    spark = session.spark
    line_ids = sorted({(line.source_file, line.line, line.digest) for line in lines})
    ids = spark.createDataFrame(line_ids, "source_file STRING, line BIGINT, digest STRING")
    count = table_at(spark, facts.snapshot).join(ids, ids.columns, "left_semi").count()
    if not count:
        return
    with (
        temporary_view(spark, ids) as view,
        session_confs(spark, {USER_METADATA: json.dumps({"retried": count})}),
    ):
        spark.sql(statements.delete_landed_again(facts.snapshot.uri, view))


def lines_landed_again(store: Store, paths: Sequence[str]) -> "list[RetriedLine]":
    """The lines in these files of retried lines. Skips files that are gone or were changed."""
    from lakehouse.core.ingest.retried_lines import decode_lines

    lines: list[RetriedLine] = []
    for path in paths:
        with suppress(FileNotFoundError, Unreadable):
            lines += decode_lines(store.read(path))
    return lines


def missing_entries(spark: "SparkSession", snapshot: Snapshot, entries: "DataFrame") -> "DataFrame":
    """The entries that the quarantine does not have yet from any batch.

    A duplicate entry could be loaded twice. Entries for one whole file are duplicates if they have
    the same reason; entries for one line, if they have the same digest of the file. The texts of
    lines are not compared, because they depend on the declaration.
    """
    present = table_at(spark, snapshot).alias("present")

    def is_same(name: str) -> "Column":
        return F.col(f"entry.{name}").eqNullSafe(F.col(f"present.{name}"))

    is_file = F.col("entry.line").isNull()
    is_same_content = F.when(is_file, is_same("reason")).otherwise(is_same("digest"))
    return entries.alias("entry").join(
        present, is_same("source_file") & is_same("line") & is_same_content, "left_anti"
    )


def _files_transaction(table_key: str, batch: Batch) -> delta_writes.Transaction:
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


def _path(batch: Batch, file: SetAside) -> str:
    """The path of a file. Bytes of its name that are not UTF-8 are escaped."""
    return f"{batch.prefix}{file.name}".encode("utf-8", "backslashreplace").decode()
