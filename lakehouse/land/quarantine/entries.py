"""The quarantine table of a landed table: records and files that could not be loaded, with reasons.

**Safety properties**
- A batch's entries are one commit with a transaction id. A repeated batch adds only entries that
  are missing, under an id that contains the quarantine's version, so that of two processes which
  repeat a batch at the same time only one adds them (`test_load.py`).
- If a repeated batch loads a record, the record's entry is removed
  (`long/test_renamed_columns.py`). If a batch gives up a file, the entries of the file's records
  are removed first (`test_unwritable_rows.py`). So no retry loads a record twice.
- A batch that loads no rows is finished when a commit of the quarantine identifies exactly its
  files. The batch's number does not prove this: if the ledger was deleted, a new ledger gives the
  numbers in the quarantine to other files (`test_unwritable_rows.py`, `test_load.py`).
"""

from hashlib import blake2b
from typing import TYPE_CHECKING

from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.parse_lines import quarantined_lines
from lakehouse.land.plan.batches import Batch, SetAside
from lakehouse.spark import delta_writes, statements
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import table_at, temporary_view

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The landed file to which `lakehouse quarantine retry` writes a line. Null for other lines.
RETRIED_AS = "retried_as"
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


def quarantine(session: TableSession, batch: Batch, lines: "DataFrame | None") -> None:
    """Adds the bad records of a batch (those in `lines` with a reason) and its quarantined files.

    A file's entry has no line number and no text.
    """
    if lines is None and not batch.quarantined:
        return
    lake = session.lake
    spark = session.spark
    key = session.key
    facts = lake.facts(quarantine_key(key))
    rows = [(_path(batch, file), None, file.why, None, None, None) for file in batch.quarantined]
    entries = spark.createDataFrame(rows, _SCHEMA)
    if lines is not None:
        entries = quarantined_lines(lines).unionByName(entries)
    recorded = 0 if facts is None else facts.snapshot.transactions.get(quarantine_app_id(key), 0)
    is_repeated = recorded >= batch.number
    if facts is not None and (is_repeated or not batch.files):
        entries = _missing_entries(spark, facts.snapshot, entries)
        # A batch without rows is recorded by its commit here, even if the commit is empty.
        if batch.files and entries.isEmpty():
            return
    transaction = delta_writes.Transaction(app_id=quarantine_app_id(key), version=batch.number)
    if not batch.files:
        transaction = _files_transaction(key, batch)
    elif facts is not None and is_repeated:
        # Delta skips a second write under the batch's number. All who read this version of the
        # quarantine use the same id, so that only one of them adds the missing entries.
        app_id = f"{quarantine_app_id(key)}/repeated"
        transaction = delta_writes.Transaction(app_id=app_id, version=facts.snapshot.version)
    # Imported here, because most loads quarantine nothing.
    from lakehouse.land.plan.file_text import csv_fields_text

    more_columns = {
        "batch": F.lit(batch.number).cast("bigint"),
        "quarantined_at": F.current_timestamp(),
        "fields": F.lit(csv_fields_text(session.table.landing)).cast("string"),
        RETRIED_AS: F.lit(None).cast("string"),
    }
    write = delta_writes.FrameWrite(mode="append", adds_columns=True, transaction=transaction)
    uri = lake.settings.table_uri(quarantine_key(key))
    delta_writes.write_frame(entries.withColumns(more_columns), uri, write)


def take_out_lines(
    session: TableSession, batch: Batch, still_bad: "DataFrame | None" = None
) -> None:
    """Removes the entries of a batch's lines, except those of the parsed records in `still_bad`.

    A repeated batch loads the lines that the current declaration accepts. If their entries stayed,
    a retry would load them a second time.
    """
    spark = session.spark
    facts = session.lake.facts(quarantine_key(session.key))
    if facts is None:
        return
    names = [(f"{batch.prefix}{file.name}", file.digest) for file in batch.files]
    files = spark.createDataFrame(names, "source_file STRING, digest STRING")
    entries = table_at(spark, facts.snapshot).where("line IS NOT NULL")
    rows = entries.join(files, files.columns, "left_semi").select("source_file", "line", "digest")
    if still_bad is not None:
        rows = rows.join(quarantined_lines(still_bad), rows.columns, "left_anti")
    if rows.isEmpty():
        return
    with temporary_view(spark, rows) as view:
        spark.sql(statements.delete_lines(facts.snapshot.uri, view))


def _missing_entries(
    spark: "SparkSession", snapshot: Snapshot, entries: "DataFrame"
) -> "DataFrame":
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
