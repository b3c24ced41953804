"""Lines of a quarantine that are read again as their table is declared now.

1. The quarantine is pinned at its version, and its lines are parsed.
2. Those that are rows now, and are not in the table, are appended to it in one commit.
3. A manifest says by which commit the table has them, and at which version of the quarantine they still stood.
4. Those that are in the table are taken out of the quarantine in one commit.

A table that was put back from an older copy has no such commit: the next load or retry puts the lines into the quarantine again.

**Safety properties** (tests in `test_review.py`, but for the last)
- A line is appended only if the table has no row of its file and number, and leaves the quarantine
  only if the table has one. Wherever a run dies, the same call ends with each line in one of the
  two.
- A line that left the quarantine for the table comes back if the table's log no longer shows its
  commit.
- A line of another content of its file than the one that was loaded stays: a row at its place is
  not its own.
- A line whose text may be cut short never becomes a row.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.core.declaration.change_sources import Dms
from lakehouse.core.declaration.schema_changes import NEW_KEY
from lakehouse.core.declaration.table import Append, Table
from lakehouse.core.delta.commits import written_in
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.batches import Batch, KnownFile, Ledger, RetriedLines
from lakehouse.core.ingest.inferred import pinned_table
from lakehouse.core.ingest.ledger_segments import retry_app_id
from lakehouse.core.ingest.outcome import QuarantineReview
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn, columns_in_force
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.parse_lines import (
    OWN,
    REASON,
    is_of_the_declaration,
    named_lines,
    parse_records,
    table_rows,
    without_rescued,
)
from lakehouse.engine.journal.landed_batches import LandedBatches
from lakehouse.engine.lake import Lake
from lakehouse.engine.quarantine.entries import (
    entries_at,
    missing_entries,
    quarantine_key,
    why_other_fields,
)
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at, temporary_view
from lakehouse.engine.spark.session_settings import USER_METADATA, session_confs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLACE = OWN[:2]
_LINE = ["source_file", "line"]  # the same, of a quarantine
_OTHER = "_other_content"
_RETRY = "retry"  # in the metadata of the commit that takes lines out: the version of `retry_app_id` by which the table has them


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineFacts:
    """The quarantine, its table, and the ledger of the table's batches, of which each is done."""

    quarantine: TableFacts
    target: TableFacts | None
    batches: LandedBatches
    ledger: Ledger


def retry_lines(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    known: QuarantineFacts,
    lines: "DataFrame",
    review: QuarantineReview,
) -> QuarantineReview:
    """The review with what became of the lines; `lines` are those of the quarantine that were asked for."""
    target, ledger = known.target, known.ledger
    if not isinstance(table.write, Append) or target is None:
        changes, why = (
            table.landing.changes,
            "the table is not written by Append: land these lines in a new file",
        )
        if isinstance(changes, Dms) and not changes.position:
            why += ", whose name sorts right behind that of the file they are from: names order these changes"
        return replace(
            review,
            left={**review.left, "there is no table yet" if target is None else why: review.lines},
        )
    if (other := (marked := mark_other_content(spark, lines, ledger)).where(_OTHER).count()) > 0:
        review = replace(
            review, left={**review.left, "their file was loaded with another content": other}
        )
    lines, table = (
        marked.where(f"NOT {_OTHER}").drop(_OTHER),
        pinned_table(table, ledger.columns, is_loaded=True),
    )
    added = columns_in_force(ledger.columns, table.landing)
    parsed = _parsed(table, _without_older(lines), added)
    counts = {
        why: (count, rescued)
        for why, count, rescued in parsed.groupBy(REASON)
        .agg(F.count("*"), F.count(RESCUED))
        .collect()
    }
    row_count, rescued_count = counts.pop(None, (0, 0))
    good = without_rescued(table_rows(parsed), added, rescued_count, target.snapshot)
    commit_rows.check_columns(good, table, target.snapshot)
    fresh = good.join(_loaded(spark, target.snapshot), [*_PLACE], "left_anti").select(*good.columns)
    fresh_count = fresh.count() if row_count else 0
    review = replace(
        review,
        rows=fresh_count,
        left={**review.left, **{why: counts[why][0] for why in sorted(counts)}},
    )
    if review.dry_run or not row_count:
        return review
    if fresh_count:
        commit_rows.add_columns(lake, spark, table, good, target)
        told = [
            each.version for each in ledger.retried if each.table_id == target.snapshot.table_id
        ]
        version = max(target.snapshot.transactions.get(retry_app_id(table.key), 0), *told, 0) + 1
        transaction = commit_rows.Transaction(app_id=retry_app_id(table.key), version=version)
        commit_rows.write_rows(lake, table, fresh.coalesce(1), transaction)
    _take_out(lake, spark, table, known, lines, row_count)
    return review


def put_back(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    facts: TableFacts | None,
    ledger: Ledger,
    tell: Callable[[str], None],
) -> TableFacts | None:
    """The table's facts, once the lines are in the quarantine again that it had from there and came back from an older copy without.

    The caller holds the table's guard.

    Raises:
        Broken: the quarantine's log no longer tells which lines they are.
    """
    if facts is None:
        return None
    known = facts.snapshot.transactions.get(retry_app_id(table.key), 0)
    lost = [
        each
        for each in ledger.retried
        if each.table_id == facts.snapshot.table_id and each.version > known
    ]
    if not lost:
        return facts
    count = 0
    for each in lost:  # a line of several retries is put back by the first of them
        quarantine = lake.facts(quarantine_key(table.key))
        count += 0 if quarantine is None else _put_back(lake, spark, table, quarantine, each)
    transaction = commit_rows.Transaction(
        app_id=retry_app_id(table.key), version=max(each.version for each in lost)
    )
    commit_rows.record_transaction(spark, facts.snapshot.uri, transaction)
    tell(
        f"{table.key}: {count} line(s) that it came back from an older copy without are in its quarantine again"
    )
    return lake.facts(table.key)


def _put_back(
    lake: Lake, spark: "SparkSession", table: Table, quarantine: TableFacts, lost: RetriedLines
) -> int:
    """The number of lines of one retry that were put back; 0 where they never left this quarantine."""
    version = lost.quarantine_version
    if version >= quarantine.snapshot.version:
        return 0
    commits = history_since(lake.store, quarantine.history, version).commits
    after = next((commit for commit in commits if commit.version == version + 1), None)
    if after is None:
        raise Broken(
            f"load of {table.key}: the table was put back from a copy without lines that it had from its quarantine, whose log no longer "
            f"tells of version {version + 1}, by which they left. Put a newer copy back, or {NEW_KEY}"
        )
    if written_in(after).get(_RETRY) != lost.version:
        return 0
    before, then = (
        entries_at(spark, quarantine.snapshot, version=each) for each in (version, version + 1)
    )
    found = missing_entries(spark, quarantine.snapshot, before.exceptAll(then))
    if (count := found.count()) > 0:
        commit_rows.write_frame(found, quarantine.snapshot.uri, mode="append", widen=True)
    return count


def _without_older(lines: "DataFrame") -> "DataFrame":
    """The lines, each once, without those of an older program, which told no digest of their file, that stand there again with it."""
    lines = lines.dropDuplicates([*_LINE, "raw"])
    known = lines.where("digest IS NOT NULL")
    return known.unionByName(
        lines.where("digest IS NULL")
        .join(known.select(_LINE), _LINE, "left_anti")
        .select(*lines.columns)
    )


def mark_other_content(spark: "SparkSession", lines: "DataFrame", ledger: Ledger) -> "DataFrame":
    """The lines, each with the time of its file, and whether it is of another content of that than was loaded; older lines have no digest.

    Where the ledger does not tell which content was loaded, and several have a line at one place, all of these lines count as other ones.
    """
    from pyspark.sql import Window

    def loaded_contents(file: KnownFile) -> list[str]:
        loaded = file.as_loaded
        return [loaded.digest, *loaded.earlier] if file.is_taken and loaded.digest else []

    paths = [path for (path,) in lines.select("source_file").distinct().collect()]
    known = [(path, ledger.seen[path]) for path in paths if path in ledger.seen]
    files = [(path, file.modified_ms, loaded_contents(file) or None) for path, file in known]
    told = spark.createDataFrame(
        files, "source_file STRING, landed_ms BIGINT, loaded ARRAY<STRING>"
    )
    contents = F.size(F.collect_set("digest").over(Window.partitionBy(*_LINE)))
    other = F.coalesce(
        ~F.array_contains("loaded", F.col("digest")),
        F.col("digest").isNotNull() & F.col("loaded").isNull() & F.col("several"),
    )
    marked = (
        lines.withColumn("several", contents > 1)
        .join(F.broadcast(told), "source_file", "left")
        .withColumn(_OTHER, other)
    )
    return marked.select(*lines.columns, "landed_ms", _OTHER)


def _take_out(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    known: QuarantineFacts,
    lines: "DataFrame",
    row_count: int,
) -> None:
    """Takes the lines out of the quarantine that the table has as it is now."""
    after, facts = lake.facts(table.key), known.quarantine
    assert after is not None
    loaded = (
        lines.select(*_LINE, "digest")
        .distinct()
        .join(_loaded(spark, after.snapshot).toDF(*_LINE), _LINE, "left_semi")
    )
    if (found := loaded.select(_LINE).distinct().count()) < row_count:
        raise Broken(
            f"retry of {table.key}: {row_count} line(s) of its quarantine are rows now, and version {after.snapshot.version} of the table "
            f"has {found} of them; the quarantine keeps all of them: compare that version with the lines"
        )
    version, said = after.snapshot.transactions.get(retry_app_id(table.key), 0), {"retried": found}
    if version:
        now, newest = lake.facts(quarantine_key(table.key)), known.batches.ledger().newest
        assert now is not None and newest is not None
        retried = RetriedLines(
            table_id=after.snapshot.table_id,
            version=version,
            quarantine_version=now.snapshot.version,
        )
        known.batches.plan(
            Batch(number=newest.number + 1, files=(), prefix=table.landing.prefix, retried=retried)
        )
        said[_RETRY] = version
    with (
        temporary_view(spark, loaded) as view,
        session_confs(spark, {USER_METADATA: json.dumps(said)}),
    ):
        tells_digests = any(column.name == "digest" for column in facts.snapshot.columns)
        digest = "target.digest" if tells_digests else "CAST(NULL AS STRING)"
        spark.sql(statements.delete_loaded_lines(facts.snapshot.uri, view, digest=digest))


def _parsed(table: Table, lines: "DataFrame", added: Sequence[AddedColumn]) -> "DataFrame":
    """The lines as records, parsed as the table is declared now."""
    records = lines.select(
        "source_file",
        "line",
        F.coalesce(F.timestamp_millis("landed_ms"), F.col("quarantined_at")).alias("landed_at"),
        "raw",
        F.coalesce(
            why_other_fields(table),
            F.when(~is_of_the_declaration(F.col("reason")), F.col("reason")),
        ).alias("problem"),
        F.lit(False).alias("is_object"),
        "undeclared",
        F.lit(None).cast("string").alias("digest"),
    )
    return parse_records(
        table.landing, named_lines(records), added, commit_rows.partition_columns(table)
    )


def _loaded(spark: "SparkSession", snapshot: Snapshot) -> "DataFrame":
    """The file and the line that each row of a table comes from."""
    return table_at(spark, snapshot).select(*_PLACE)
