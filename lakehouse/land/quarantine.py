"""The quarantine of a landed table: its entries, and how they are shown, landed again and dropped.

An entry is a record or a file that could not be loaded, with a reason. Values are copied as they
are stored: no value passes through a type of Python.

Lines are landed again in three steps:

1. Mark the lines in the quarantine with the path of a new landed file. The lines decide the path.
2. Write the file in the table's own format, unless it exists or the ledger knows it as loaded.
3. Remove the lines with this mark from the quarantine.

Whole files:

1. Write a manifest that marks the files as unread, so that the next load reads them as new files.
2. Remove their entries from the quarantine.

**Safety properties**
- A batch's entries are one commit with a transaction id. A repeated batch adds only entries that
  are missing, under an id that contains the quarantine's version, so that of two processes which
  repeat a batch at the same time only one adds them (`test_quarantine.py`).
- If a repeated batch loads a record, the record's entry is removed
  (`long/test_renamed_columns.py`). If a batch gives up a file, the entries of the file's records
  are removed first (`test_unwritable_rows.py`). So no retry loads a record twice.
- A batch that loads no rows is finished when a commit of the quarantine identifies exactly its
  files. The batch's number does not prove this: if the ledger was deleted, a new ledger gives the
  numbers in the quarantine to other files (`test_unwritable_rows.py`, `land/test_run.py`).
- A marked line belongs to one file for good. A retry that finds marks of a killed retry continues
  it with step 2. So no line is in two files, and a line leaves the quarantine after its file was
  written (`test_quarantine.py`).
- The next load reads the file like any other landed file, exactly once. No other table loads it.
- A line whose text may be truncated is kept in the quarantine.
- Nothing is retried or dropped while a batch is unfinished, since that batch may write the same
  entries again. Entries of batches that were planned afterwards are left alone.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.text import count_of, first_names, size_text
from lakehouse.declare.table import Append
from lakehouse.delta.log import TableFacts
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.land.ledger import (
    files_transaction,
    last_loaded,
    planned_batches,
    quarantine_app_id,
    quarantine_key,
    unfinished_batch,
)
from lakehouse.land.parse_lines import depends_on_declaration, quarantined_lines
from lakehouse.land.plan.batches import Batch, LandedFile, Ledger, SetAside, fingerprint
from lakehouse.land.plan.file_text import (
    are_declared,
    csv_fields_text,
    retried_path,
    retried_text,
)
from lakehouse.land.plan.records import with_renamed_fields
from lakehouse.spark import frames, statements
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import FrameWrite, Transaction, table_at, temporary_view
from lakehouse.spark.temporary_confs import USER_METADATA, session_confs
from lakehouse.store import StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


# The landed file to which `lakehouse quarantine retry` writes a line. Null for other lines.
RETRIED_AS = "retried_as"
_SCHEMA = (
    "source_file STRING, line BIGINT, reason STRING, raw STRING, undeclared STRING, digest STRING"
)


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
    app_id = quarantine_app_id(key)
    recorded = 0 if facts is None else facts.snapshot.transactions.get(app_id, 0)
    is_repeated = recorded >= batch.number
    if facts is not None and (is_repeated or not batch.files):
        entries = _missing_entries(spark, facts.snapshot, entries)
        # A batch without rows is recorded by its commit here, even if the commit is empty.
        if batch.files and entries.isEmpty():
            return
    transaction = Transaction(app_id=app_id, version=batch.number)
    if not batch.files:
        transaction = files_transaction(key, batch)
    elif facts is not None and is_repeated:
        # Delta skips a second write under the batch's number. All who read this version of the
        # quarantine use the same id, so that only one of them adds the missing entries.
        transaction = Transaction(app_id=f"{app_id}/repeated", version=facts.snapshot.version)
    more_columns = {
        "batch": F.lit(batch.number).cast("bigint"),
        "quarantined_at": F.current_timestamp(),
        "fields": F.lit(csv_fields_text(session.table.landing)).cast("string"),
        RETRIED_AS: F.lit(None).cast("string"),
    }
    write = FrameWrite(mode="append", adds_columns=True, transaction=transaction)
    uri = lake.settings.table_uri(quarantine_key(key))
    frames.write_frame(entries.withColumns(more_columns), uri, write)


def take_out_lines(
    session: TableSession, batch: Batch, still_bad: "DataFrame | None" = None
) -> None:
    """Removes the entries of lines of a batch's files, except those of the records in `still_bad`.

    A repeated batch loads the lines that the current declaration accepts. If their entries stayed,
    a retry would load them a second time.
    """
    spark = session.spark
    facts = session.lake.facts(quarantine_key(session.key))
    if facts is None:
        return
    named = (*batch.files, *batch.quarantined)
    names = [(_path(batch, file), file.digest) for file in named]
    files = spark.createDataFrame(names, "source_file STRING, digest STRING")
    entries = table_at(spark, facts.snapshot).where("line IS NOT NULL")
    rows = entries.join(files, files.columns, "left_semi").select("source_file", "line", "digest")
    if still_bad is not None:
        rows = rows.join(quarantined_lines(still_bad), rows.columns, "left_anti")
    if rows.isEmpty():
        return
    with temporary_view(spark, rows) as view:
        uri = facts.snapshot.uri
        spark.sql(statements.merge_lines(uri, view, "WHEN MATCHED THEN DELETE"))


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


def _path(batch: Batch, file: LandedFile) -> str:
    """The path of a file. Bytes of its name that are not UTF-8 are escaped."""
    return f"{batch.prefix}{file.name}".encode("utf-8", "backslashreplace").decode()


@frozen
class QuarantineReview:
    """The effect of a command on a quarantine. With `dry_run`, the effect that it would have.

    `lines` and `files` count the lines and files that leave the quarantine. If `dropped` is not 0,
    a person has handled them: they are not loaded. Otherwise, they are loaded again, lines from the
    new files `landed`. `left` counts what stays in the quarantine, by reason.
    """

    table: str
    dry_run: bool
    lines: int
    files: int
    dropped: int = 0
    landed: tuple[str, ...] = ()
    left: Mapping[str, int] = {}

    @property
    def sentence(self) -> str:
        """The effect as a sentence."""
        lines = count_of(self.lines, "line")
        files = count_of(self.files, "file")
        if self.dropped:
            return f"{'would drop' if self.dry_run else 'dropped'} {lines} and {files}"
        verb = "would land" if self.dry_run else "landed"
        where = f" in {first_names(self.landed)}" if self.landed else ""
        kept = "".join(f"; {count} kept: {why}" for why, count in self.left.items())
        return f"{verb} {lines} again{where}; to be read again: {files}{kept}"


_SHOWN_REASONS = 20
_WHY = "_lakehouse_why_kept"
_NO_TEXT = (
    "rows of Parquet and Avro are not copied. Correct the declaration, and land these rows in a "
    "new file"
)
_IDS = ("source_file", "line", "digest")


def show(session: TableSession, files: Sequence[str], *, limit: int) -> dict[str, Any]:
    """The most frequent reasons, and up to `limit` entries, those of the newest batches first.

    `files` are paths of landed files; only their entries count. If it is empty, all count.

    Raises:
        Refused: nothing was ever quarantined.
    """
    with translated():
        entries = _entries(session, _of_files(files))
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


def drop(
    session: TableSession, files: Sequence[str], *, why: str, dry_run: bool
) -> QuarantineReview:
    """Removes entries that a person has handled. With `dry_run`, only counts them.

    `files` are paths of landed files; only their entries are removed. If it is empty, all are. The
    commit records why.

    Raises:
        Refused: `why` is empty, nothing was ever quarantined, or a batch is unfinished.
    """
    if not why.strip():
        raise Refused(
            f"quarantine {session.key}: --why is empty. Use --why to record what was done"
        )
    with _finished_ledger(session, dry_run) as ledger:
        conditions = [f"batch <= {ledger.newest_number}", *_of_files(files)]
        entries = _entries(session, conditions)
        total, lines = entries.selectExpr("count(*)", "count(line)").collect()[0]
        if total and not dry_run:
            _delete(session, conditions, dropped=total, why=why.strip())
    return QuarantineReview(
        table=session.key, dry_run=dry_run, lines=lines, files=total - lines, dropped=total
    )


def retry(session: TableSession, files: Sequence[str], *, dry_run: bool) -> QuarantineReview:
    """Makes the next load read quarantined lines and files again. With `dry_run`, only counts them.

    `files` are paths of landed files; only their entries are retried. If it is empty, all are.

    Raises:
        Refused: nothing was ever quarantined, a batch is unfinished, or the lines are too large
            for one landed file.
    """
    with _finished_ledger(session, dry_run) as ledger:
        conditions = [f"batch <= {ledger.newest_number}", *_of_files(files)]
        entries = _entries(session, conditions)
        lines, line_count, kept_lines = _choose_lines(session, entries)
        counts = {
            row[0]: int(row[1])
            for row in entries.where("line IS NULL").groupBy("source_file").count().collect()
        }
        retried_files, kept_files = _files_to_retry(session, counts, ledger)
        line_counts = dict[str, int]()
        if not dry_run:
            _mark(session, lines)
            line_counts = _land_marked(session, ledger)
            if retried_files:
                _retry_files(session, retried_files, ledger)
    return QuarantineReview(
        table=session.key,
        dry_run=dry_run,
        lines=line_count if dry_run else sum(line_counts.values()),
        files=sum(counts[file.name] for file in retried_files),
        landed=tuple(line_counts),
        left={**kept_files, **kept_lines},
    )


def _choose_lines(
    session: TableSession, entries: "DataFrame"
) -> "tuple[DataFrame, int, dict[str, int]]":
    """The lines to land again, their number, and the number of lines that stay, by reason."""
    landing = session.table.landing
    lines = entries.where("line IS NOT NULL")
    lines = lines.withColumn(_WHY, _why_kept(session, lines))
    text_bytes = F.octet_length("raw") + F.coalesce(F.octet_length("undeclared"), F.lit(0))
    kept_counts = dict[str, int]()
    line_count = 0
    size_bytes = 0
    groups = lines.groupBy(_WHY).agg(F.count("*"), F.sum(text_bytes)).collect()
    for why, count, group_bytes in sorted(groups, key=str):
        if why is None:
            line_count = count
            size_bytes = group_bytes
        else:
            kept_counts[why] = count
    if size_bytes > landing.max_file_bytes:
        raise Refused(
            f"quarantine {session.key}: the size of {count_of(line_count, 'line')} is "
            f"{size_text(size_bytes)}, and the limit for a landed file is "
            f"{size_text(landing.max_file_bytes)}. Use --file to retry fewer lines, or raise "
            "Landing.max_file_bytes"
        )
    return lines.where(F.col(_WHY).isNull()), line_count, kept_counts


def _why_kept(session: TableSession, lines: "DataFrame") -> "Column":
    """Why a line is kept in the quarantine; null if it can be landed again."""
    table = session.table
    landing = with_renamed_fields(table).landing
    if not isinstance(table.write, Append):
        return F.lit("the table is not written by Append. Land these lines in a new file")
    if landing.format in ("parquet", "avro"):
        return F.lit(_NO_TEXT)
    why = F.when(F.col(RETRIED_AS).isNotNull(), F.lit(None).cast("string"))
    why = why.when(~depends_on_declaration(F.col("reason")), F.col("reason"))
    recorded = [row[0] for row in lines.select("fields").distinct().collect()]
    others = [fields for fields in recorded if not are_declared(fields, landing)]
    for fields in others:
        reason = f"the lines were read with other fields: {fields}"
        why = why.when(F.col("fields").eqNullSafe(F.lit(fields).cast("string")), reason)
    return why


def _mark(session: TableSession, lines: "DataFrame") -> None:
    """Marks lines with the path of the file to which they are written."""
    spark = session.spark
    landing = session.table.landing
    unmarked = lines.where(F.col(RETRIED_AS).isNull()).select(*_IDS).distinct()
    ids = unmarked.collect()
    if not ids:
        return
    path = retried_path(session.key, landing, map(tuple, ids))
    marks = unmarked.withColumn(RETRIED_AS, F.lit(path))
    # A mark that is set stays.
    mark = (
        f"WHEN MATCHED AND target.{RETRIED_AS} IS NULL "
        f"THEN UPDATE SET {RETRIED_AS} = source.{RETRIED_AS}"
    )
    uri = session.lake.table_uri(quarantine_key(session.key))
    with temporary_view(spark, marks) as view:
        spark.sql(statements.merge_lines(uri, view, mark))


def _land_marked(session: TableSession, ledger: Ledger) -> dict[str, int]:
    """Writes the files of all marked lines, and removes these lines.

    Returns the number of lines in each file.
    """
    store = session.lake.store
    marked = _entries(session, [f"{RETRIED_AS} IS NOT NULL"])
    rows = marked.select(RETRIED_AS, *_IDS, "raw", "undeclared").distinct().collect()
    files: dict[str, list[Any]] = {}
    for row in sorted(rows, key=lambda each: tuple(each)[:4]):
        files.setdefault(row[0], []).append(row)
    counts = dict[str, int]()
    for path, lines in files.items():
        was_loaded = fingerprint(path) in ledger.forgotten or ledger.loaded(path) is not None
        if not was_loaded:
            store.put_if_absent(path, _content(session, lines))
        _delete(session, [f"{RETRIED_AS} = {statements.literal(path)}"])
        counts[path] = len(lines)
    return counts


def _content(session: TableSession, lines: Sequence[Any]) -> bytes:
    """The content of a landed file with these lines, in the table's own format."""
    landing = session.table.landing
    text = retried_text([(line["raw"], line["undeclared"]) for line in lines], landing)
    try:
        return text.encode(landing.encoding)
    except UnicodeEncodeError as error:
        raise Refused(
            f"quarantine {session.key}: the lines cannot be written in the declared encoding "
            f"({error}). Use the encoding that the lines had for the retry"
        ) from error


def _files_to_retry(
    session: TableSession, counts: Mapping[str, int], ledger: Ledger
) -> tuple[list[StoredFile], dict[str, int]]:
    """The files that can be read again, and the number of other files' entries, by reason.

    `counts` has the number of entries for each whole file, by its path.
    """
    prefix = session.table.landing.prefix
    kept_counts = Counter[str]()
    retried_files = list[StoredFile]()
    for path, count in counts.items():
        file = session.lake.store.stat(path)
        if file is None or not path.startswith(prefix):
            kept_counts[f"the file is gone from {prefix}"] += count
        elif path not in ledger.seen or ledger.loaded(path) is not None:
            why = "rows of the file are loaded. Land only the new rows, in a file with a new name"
            kept_counts[why] += count
        else:
            retried_files.append(file)
    return retried_files, dict(kept_counts)


def _retry_files(session: TableSession, files: Sequence[StoredFile], ledger: Ledger) -> None:
    """Plans a batch that only marks these files as unread, and removes their entries."""
    prefix = session.table.landing.prefix
    # No file has this time, so the next load considers each of these files new.
    unread = tuple(
        SetAside(
            name=file.name.removeprefix(prefix),
            size_bytes=file.size_bytes,
            why="a person chose to read it again",
            modified_ms=-1,
        )
        for file in files
    )
    number = ledger.newest_number
    batch = Batch(number=number + 1, files=(), set_aside=unread, prefix=prefix)
    planned_batches(session.lake, session.table).plan(batch)
    paths = _of_files([file.name for file in files])
    conditions = [f"batch <= {number}", "line IS NULL", *paths]
    _delete(session, conditions)


def _of_files(files: Sequence[str]) -> list[str]:
    """The condition for entries of these landed `files` (paths). Without `files`, there is none."""
    paths = ", ".join(map(statements.literal, files))
    return [f"source_file IN ({paths})"] if files else []


def _delete(session: TableSession, conditions: Sequence[str], **metadata: int | str) -> None:
    """Deletes the entries that meet all conditions. The commit records the metadata."""
    uri = session.lake.table_uri(quarantine_key(session.key))
    with session_confs(session.spark, {USER_METADATA: json.dumps(metadata)}):
        session.spark.sql(statements.delete_rows(uri, conditions))


def _entries(session: TableSession, conditions: Sequence[str]) -> "DataFrame":
    """The entries that meet all conditions."""
    snapshot = facts_of(session.lake, session.key).snapshot
    return table_at(session.spark, snapshot, within=conditions)


def facts_of(lake: Lake, key: str) -> TableFacts:
    """The facts of a table's quarantine.

    Raises:
        Refused: nothing was ever quarantined.
    """
    facts = lake.facts(quarantine_key(key))
    if facts is None:
        raise Refused(
            f"quarantine {key}: nothing was ever quarantined. `lakehouse health` shows how many "
            "lines each table has in quarantine"
        )
    return facts


@contextmanager
def _finished_ledger(session: TableSession, dry_run: bool) -> Iterator[Ledger]:
    """The ledger of a table, which must have no unfinished batch.

    The context holds the table's lease, except for a dry run, and reads texts of any length.

    Raises:
        Refused: a batch is unfinished.
    """
    lake = session.lake
    table = session.table
    owner = f"quarantine command for {table.key}"
    lease = nullcontext() if dry_run else hold(lake, session.spark, table.key, owner=owner)
    with translated(), lease:
        batches = planned_batches(lake, table)
        ledger = batches.ledger()
        loaded = last_loaded(table, lake.facts(table.key), ledger)
        unfinished = unfinished_batch(lake, table, loaded, ledger, batches)
        if unfinished is not None:
            raise Refused(
                f"quarantine {table.key}: batch {unfinished.number} is unfinished and may still "
                f"write entries. Use `lakehouse materialize {table.key}`, or wait for the running "
                "load. Then repeat this command"
            )
        yield ledger
