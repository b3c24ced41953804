"""What a person does about the quarantine of a landed table: to have it read again, or to say that it was taken care of.

Lines are read again so:

1. The quarantine is pinned at its version, and its lines are parsed as the table is declared now.
2. Those that are rows now, and are not in the table, are appended to it in one commit.
3. Those that are in the table are taken out of the quarantine in one commit.

Files are read again so:

1. A manifest says that they are to be read again; the next load takes them as if they had just landed.
2. They are taken out of the quarantine. What the load finds wrong with them now goes there anew.

**Safety properties**
- A line is appended only if the table has no row of its file and number, and leaves the quarantine only if the table has one: whatever
  dies in between, the same call ends with each line in one of the two.
- A line whose text may be cut short is never made a row.
- Nothing is read again while a batch is not done: what it writes yet would be there twice, or be passed over.
- What is settled leaves the quarantine in a commit that says who took care how; the landed file stays where it is.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lakehouse.core.changes.sources import Dms
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Append, Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.batches import Batch, Ledger, SetAside
from lakehouse.core.ingest.inferred import pinned_table
from lakehouse.core.ingest.outcome import QuarantineAccount, QuarantineReview
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn, columns_in_force
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.arrival import unfinished_batch
from lakehouse.engine.ingest.parse_lines import is_of_the_declaration, named_lines, parse_records, table_rows
from lakehouse.engine.ingest.undeclared_fields import add_columns, missing_columns, without_rescued
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.quarantine.entries import quarantine_key, why_other_fields
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at, temporary_view
from lakehouse.engine.spark.session_settings import ANSI, READ_WHOLE, USER_METADATA, session_confs
from lakehouse.engine.spark.sessions import translated
from lakehouse.engine.store import StoredFile
from lakehouse.engine.table_lock import hold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SHOWN_REASONS = 20
_PLACE = ("_source_file", "_source_line")
_LINE = ["source_file", "line"]  # the same, of a quarantine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The quarantine, its table, and the ledger of the table's batches, of which each is done."""

    quarantine: TableFacts
    target: TableFacts | None
    batches: LandedBatches
    ledger: Ledger


def account_of(lake: Lake, table: Table) -> QuarantineAccount | None:
    """What the log of a table's quarantine tells; `None` if nothing was ever refused."""
    facts = lake.facts(quarantine_key(table.key))
    if facts is None:
        return None
    said = [_said(commit.user_metadata) for commit in history_since(lake.store, facts.history, -1).commits]
    settled, retried = (sum(int(each.get(name, 0)) for each in said) for name in ("settled", "retried"))
    return QuarantineAccount(table=table.key, rows=facts.snapshot.row_count, settled=settled, retried=retried)


def show(lake: Lake, spark: "SparkSession", table: Table, files: Sequence[str], *, limit: int) -> dict[str, Any]:
    """What the quarantine of a table holds: how much of each reason, and the newest `limit` lines and files.

    Raises:
        Refused: it holds nothing.
    """
    from pyspark.sql import functions as F  # noqa: N812

    with translated():
        held = _held(spark, _facts(lake, table), files)
        reasons = held.groupBy("reason").count().orderBy(F.desc("count"), "reason").limit(_SHOWN_REASONS).collect()
        newest = held.orderBy(F.desc("batch"), "source_file", "line").limit(limit)
        at = (F.unix_millis("quarantined_at")).alias("quarantined_ms")
        rows = newest.select("source_file", "line", "reason", "raw", "batch", at).collect()
    return {
        "table": table.key,
        "reasons": [{"reason": reason, "count": count} for reason, count in reasons],
        "entries": [row.asDict() for row in rows],
    }


def settle(lake: Lake, spark: "SparkSession", table: Table, files: Sequence[str], *, why: str, dry_run: bool) -> QuarantineReview:
    """Takes lines and files out of a table's quarantine, since a person took care of them; `files` are theirs, none means all.

    Raises:
        Refused: there is no reason, nothing is there, or a batch is not done, which would put there again what is taken out.
    """
    if not why.strip():
        raise Refused(f"quarantine {table.key}: --why is empty; accepted: what was done about it")
    with translated(), _guard(lake, spark, table, "settling", dry_run=dry_run):
        facts = _known(lake, table).quarantine
        held = _held(spark, facts, files)
        total, lines = _counts(held)
        upto = max([0, *(batch for (batch,) in held.selectExpr("max(batch)").collect() if batch is not None)])
        if total and not dry_run:
            with session_confs(spark, {USER_METADATA: json.dumps({"settled": total, "why": why.strip()})}):
                spark.sql(statements.delete_lines(facts.snapshot.uri, upto_batch=upto, source_files=files))
    return QuarantineReview(table=table.key, dry_run=dry_run, lines=lines, files=total - lines, settled=total, left={})


def retry(lake: Lake, spark: "SparkSession", table: Table, files: Sequence[str], *, dry_run: bool) -> QuarantineReview:
    """Reads lines again as the table is declared now, and has the next load read files again; `files` are theirs, none means all.

    Raises:
        Refused: nothing is there, a batch is not done, or the table that is there has other columns than its declaration.
        Broken: the table has fewer of the lines than were written into it.
    """
    with translated(), _guard(lake, spark, table, "a retry", dry_run=dry_run), session_confs(spark, {ANSI: "false"}):
        known = _known(lake, table)
        held = _held(spark, known.quarantine, files)
        total, lines = _counts(held)
        left = _retry_files(lake, spark, table, known, held.where("line IS NULL"), dry_run=dry_run) if total > lines else {}
        review = QuarantineReview(table=table.key, dry_run=dry_run, lines=lines, files=total - lines - sum(left.values()), left=left)
        return _retry_lines(lake, spark, table, known, held.where("line IS NOT NULL"), review) if lines else review


def _retry_lines(
    lake: Lake, spark: "SparkSession", table: Table, known: _Known, lines: "DataFrame", review: QuarantineReview
) -> QuarantineReview:
    target, ledger = known.target, known.ledger
    if not isinstance(table.write, Append) or target is None:
        changes, why = _landing(table).changes, "the table is not written by Append: land these lines in a new file"
        if isinstance(changes, Dms) and not changes.position:
            why += ", whose name sorts right behind that of the file they are from: names order these changes"
        return replace(review, left={**review.left, "there is no table yet" if target is None else why: review.lines})
    table = pinned_table(table, ledger.columns, is_loaded=True)
    added = columns_in_force(ledger.columns, _landing(table))
    parsed = _parsed(spark, table, _without_older(lines), ledger, added)
    row_count, rescued_count = table_rows(parsed).selectExpr("count(*)", f"count({RESCUED})").collect()[0]
    good = without_rescued(table_rows(parsed), added, rescued_count, target.snapshot)
    missing = missing_columns(good, added, target.snapshot)
    commit_rows.check_shape(good, table, target.snapshot, new=missing)
    fresh = good.join(_loaded(spark, target.snapshot), [*_PLACE], "left_anti").select(*good.columns)
    fresh_count = fresh.count()
    reasons = parsed.where("_lakehouse_reason IS NOT NULL").groupBy("_lakehouse_reason").count().collect()
    review = replace(review, rows=fresh_count, left={**review.left, **dict(sorted(map(tuple, reasons)))})
    if review.dry_run or not row_count:
        return review
    if fresh_count:
        if missing:
            add_columns(spark, target.snapshot.uri, missing)
        app_id = f"lakehouse/retry/{table.key}"
        commit_rows.write_frame(
            fresh.coalesce(1),
            target.snapshot.uri,
            mode="append",
            partition_by=commit_rows.partition_columns(table),
            transaction=commit_rows.Transaction(app_id=app_id, version=target.snapshot.transactions.get(app_id, 0) + 1),
        )
    _take_out(lake, spark, table, known.quarantine, lines, row_count)
    return review


def _without_older(lines: "DataFrame") -> "DataFrame":
    """The lines, each once, without those of an older program, which told no digest of their file, that stand there again with it."""
    lines = lines.dropDuplicates([*_LINE, "raw"])
    if "digest" not in lines.columns:
        return lines
    known = lines.where("digest IS NOT NULL")
    return known.unionByName(lines.where("digest IS NULL").join(known.select(_LINE), _LINE, "left_anti").select(*lines.columns))


def _take_out(lake: Lake, spark: "SparkSession", table: Table, facts: TableFacts, lines: "DataFrame", row_count: int) -> None:
    """Takes the lines out of the quarantine that the table has as it is now."""
    after = lake.facts(table.key)
    assert after is not None
    loaded = lines.select(_LINE).distinct().join(_loaded(spark, after.snapshot).toDF(*_LINE), _LINE, "left_semi")
    if (found := loaded.count()) < row_count:
        raise Broken(
            f"retry of {table.key}: {row_count} line(s) of its quarantine are rows now, and version {after.snapshot.version} of the table "
            f"has {found} of them; the quarantine keeps all of them: compare that version with the lines"
        )
    with temporary_view(spark, loaded) as view, session_confs(spark, {USER_METADATA: json.dumps({"retried": found})}):
        spark.sql(statements.delete_loaded_lines(facts.snapshot.uri, view))


def _retry_files(lake: Lake, spark: "SparkSession", table: Table, known: _Known, held: "DataFrame", *, dry_run: bool) -> dict[str, int]:
    """Has the files that can be read again read again; how many cannot, by reason."""
    landing, left, again = _landing(table), Counter[str](), list[StoredFile]()
    for path, count in held.groupBy("source_file").count().collect():
        seen, file = known.ledger.seen.get(path), lake.store.stat(path)
        if file is None or not path.startswith(landing.prefix):
            left[f"the file is gone from {landing.prefix}"] += count
        elif seen is None or seen.is_taken:
            left["rows of a file of this name were loaded: land what is new under a new name"] += count
        else:
            again.append(file)
    if again and not dry_run:
        # Of another time than the file's, so that the file is new to the next load.
        aside = tuple(
            SetAside(name=file.name.removeprefix(landing.prefix), size_bytes=file.size_bytes, why="it is to be read again", modified_ms=-1)
            for file in again
        )
        newest = 0 if known.ledger.newest is None else known.ledger.newest.number
        known.batches.plan(Batch(number=newest + 1, files=(), set_aside=aside, prefix=landing.prefix))
        names = [file.name for file in again]
        with session_confs(spark, {USER_METADATA: json.dumps({"retried": len(again)})}):
            spark.sql(statements.delete_lines(known.quarantine.snapshot.uri, upto_batch=newest, source_files=names, whole_files=True))
    return left


def _parsed(spark: "SparkSession", table: Table, lines: "DataFrame", ledger: Ledger, added: Sequence[AddedColumn]) -> "DataFrame":
    """The lines as records, parsed as the table is declared now."""
    from pyspark.sql import functions as F  # noqa: N812

    paths = [path for (path,) in lines.select("source_file").distinct().collect()]
    times = [(path, known.modified_ms) for path in paths if (known := ledger.seen.get(path)) and known.modified_ms is not None]
    landed = spark.createDataFrame(times, "source_file STRING, landed_ms BIGINT")
    records = lines.join(F.broadcast(landed), "source_file", "left").select(
        "source_file",
        "line",
        F.coalesce(F.timestamp_millis("landed_ms"), F.col("quarantined_at")).alias("landed_at"),
        "raw",
        F.coalesce(why_other_fields(lines, table), F.when(~is_of_the_declaration(F.col("reason")), F.col("reason"))).alias("problem"),
        F.lit(False).alias("is_object"),
        F.col("undeclared") if "undeclared" in lines.columns else F.lit(None).cast("string").alias("undeclared"),
        F.lit(None).cast("string").alias("digest"),
    )
    return parse_records(_landing(table), named_lines(records), added, commit_rows.partition_columns(table))


def _loaded(spark: "SparkSession", snapshot: Snapshot) -> "DataFrame":
    """Where the rows of a table come from."""
    return table_at(spark, snapshot).select(*_PLACE)


def _held(spark: "SparkSession", facts: TableFacts, files: Sequence[str]) -> "DataFrame":
    held = table_at(spark, facts.snapshot)
    return held.where(held["source_file"].isin(*files)) if files else held


def _counts(held: "DataFrame") -> tuple[int, int]:
    """How many entries there are, and how many of them are lines."""
    [found] = held.selectExpr("count(*)", "count(line)").collect()
    return found[0], found[1]


def _known(lake: Lake, table: Table) -> _Known:
    quarantine, target = _facts(lake, table), lake.facts(table.key)
    batches = LandedBatches(lake.store, table.key, prefix=_landing(table).prefix)
    ledger = batches.ledger()
    if (batch := unfinished_batch(lake, table, target, ledger, batches)) is not None:
        raise Refused(
            f"quarantine {table.key}: batch {batch.number} is not done, and may yet write what would be read again or settled; accepted: "
            f"lakehouse materialize {table.key}, or to wait for the load that is under way, and then this"
        )
    return _Known(quarantine=quarantine, target=target, batches=batches, ledger=ledger)


def _facts(lake: Lake, table: Table) -> TableFacts:
    facts = lake.facts(quarantine_key(table.key))
    if facts is None:
        raise Refused(f"quarantine {table.key}: nothing of it was ever refused; accepted: a table of lakehouse quarantine list")
    return facts


def _landing(table: Table) -> Landing:
    assert table.source is not None
    return table.source


@contextmanager
def _guard(lake: Lake, spark: "SparkSession", table: Table, what: str, *, dry_run: bool) -> Iterator[None]:
    if dry_run:
        yield
        return
    with hold(lake, spark, table.key, owner=f"{what} of the quarantine of {table.key}"), session_confs(spark, READ_WHOLE):
        yield


def _said(metadata: str | None) -> dict[str, Any]:
    """What a commit of ours says of itself; nothing where somebody else's says something else."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    return {name: value for name, value in found.items() if isinstance(value, int)} if isinstance(found, dict) else {}
