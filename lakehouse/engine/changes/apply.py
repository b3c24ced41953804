"""The changes of a batch into a table: the newest row of each key, or every version of it.

1. The batch's changes are folded: to the newest of each key, or to one for each key and position.
2. `Merge`, hard deletions: those that a remembered deletion is newer than are left out. What the batch deletes is remembered.
3. `History`: the versions of the keys in the batch are read, and when each holds is computed anew.
4. One MERGE writes what differs, under the batch's number; the first batch makes the table by an append.

**Safety properties**
- A change takes effect only against an older state of its key, by position, in the table and among remembered deletions.
- What is remembered is written before the commit, and repeats of a batch write the same.
"""

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from lakehouse.core.changes.sources import HISTORY_COLUMNS, Dms, Operation
from lakehouse.core.declaration.table import History, Merge, Table
from lakehouse.core.ingest.batches import Batch, ingest_app_id
from lakehouse.engine.changes.columns import CHANGED_AT, DELETED, OLD_KEY, OPERATION, POSITION
from lakehouse.engine.changes.deleted_keys import forget, remember, remembered
from lakehouse.engine.changes.read import ChangeCounts, change_keys
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.arrival import batch_commits
from lakehouse.engine.ingest.parse_lines import DIGEST, OWN, RAW, REASON, UNDECLARED
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# By what changes of one key are compared; file and line decide between equal positions.
ORDER = (POSITION, *OWN[:2])
TRUNCATED = "_truncated"
_WAS, _RANK, _BEFORE, _TOLD = (
    "_lakehouse_was",
    "_lakehouse_rank",
    "_lakehouse_before",
    "_lakehouse_told",
)
# Also of times, of intervals, of hstore as JSON, and zero as the bytes of a precise number.
_FALLBACK_TEXTS = ("", "1970-01-01T00:00:00Z", "00:00:00Z", "P0Y0M0DT0H0M0S", "{}", "AA==")
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def changed_rows(lines: "DataFrame", table: Table) -> "DataFrame":
    """Each change as the row that it would be by itself, with the columns of the table that change data is written to."""
    told = F.col(REASON).isNull() & F.col(OPERATION).isin(
        Operation.UPSERT.value, Operation.DELETE.value
    )
    rows = _rows(lines.where(told)).drop(TRUNCATED)
    if isinstance(table.write, History):
        since = F.coalesce(CHANGED_AT, OWN[2])
        times = {
            "valid_from": since,
            "valid_to": F.when(F.col(DELETED), since),
            "is_current": ~F.col(DELETED),
        }
        return rows.withColumns(times)
    return rows if _keeps_deleted(table) else rows.where(f"NOT {DELETED}").drop(DELETED)


def apply_changes(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    lines: "DataFrame",
    counts: ChangeCounts,
    facts: TableFacts | None,
) -> None:
    """One commit of the lines that are changes; the caller holds the table's guard and looks whether it arrived."""
    if facts is None:
        forget(lake.store, table.key)
    older, number = remembered(lake, spark, table.key, batch), batch.number
    changes, keys, keeps_deleted = (
        _changes(spark, lines, table, counts, older, facts),
        change_keys(table),
        _keeps_deleted(table),
    )
    if not keeps_deleted:
        changes = _newest(changes, keys)
        if older is not None:
            # A deletion that is remembered may be undone in the table, by a RESTORE, and is landed again then.
            is_older = F.expr(f"{statements.not_older(keys, ORDER)} AND NOT source.{DELETED}")
            changes = changes.alias("source").join(older.alias("target"), is_older, "left_anti")
    if counts.truncates or (counts.deletes and not keeps_deleted):
        _remember(lake, table, number, changes.limit(0) if keeps_deleted else changes, lines, older)
    within = () if counts.first_key is None else (statements.between(keys[0], *counts.first_key),)
    if (
        facts is not None
        and isinstance(table.write, Merge)
        and keeps_deleted
        and (counts.deletes or counts.truncates)
    ):
        # The values of a change that the table's row is newer than are not those that a deletion after it deletes.
        there = table_at(spark, facts.snapshot, within=within).alias("target")
        changes = changes.alias("source").join(
            there, F.expr(statements.not_older(keys, ORDER)), "left_anti"
        )
    _commit(lake, spark, table, number, changes, within, facts)


def _commit(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    number: int,
    changes: "DataFrame",
    within: tuple[str, ...],
    facts: TableFacts | None,
) -> None:
    transaction = commit_rows.Transaction(app_id=ingest_app_id(table.key), version=number)
    uri = lake.settings.table_uri(table.key)
    match table.write:
        case Merge(keys=keys, deletes="soft"):
            own, derived = (DELETED, POSITION, CHANGED_AT, *OWN), [*table.landing.derived]
            values = [
                name for name in changes.columns if name not in (*keys, *own, *derived, TRUNCATED)
            ]
            told = _without_fallbacks(changes, values)
            source = _newest(_with_values(told, keys, (*values, *derived)), keys).drop(TRUNCATED)
            columns = {"told": _TOLD, "own": own, "values": values, "derived": derived}
            statement = partial(
                statements.merge_marked,
                uri,
                keys=keys,
                order_by=ORDER,
                deleted=DELETED,
                **columns,
                within=within,
            )
        case Merge(keys=keys):
            source = changes.drop(TRUNCATED)
            statement = partial(
                statements.merge_changes,
                uri,
                keys=keys,
                order_by=ORDER,
                deleted=DELETED,
                within=within,
            )
        case History(keys=keys):
            source = _versions(spark, changes, keys, within, facts)
            statement = partial(
                statements.merge_versions, uri, keys=(*keys, POSITION), within=within
            )
        case _:
            raise AssertionError(table.write)
    if facts is None:
        first = (
            source.drop(_TOLD)
            if _keeps_deleted(table)
            else source.where(f"NOT {DELETED}").drop(DELETED)
        )
        commit_rows.write_rows(lake, table, first, transaction)
        return
    commit_rows.run_merge(spark, source, facts.snapshot, transaction, statement)


def superseded_count(
    lake: Lake, table: Table, counts: ChangeCounts, *, before: TableFacts | None, after: TableFacts
) -> int:
    """The changes of the batch that was just committed that took no effect: a newer one was known, or they were told before."""
    commits = batch_commits(lake, table, before=before, after=after)
    metrics = commits[-1].metrics if commits else {}
    merged = ("numTargetRowsInserted",) if isinstance(table.write, History) else _MERGED
    applied = sum(
        int(metrics.get(name, "0"))
        for name in (merged if _MERGED[0] in metrics else ("numOutputRows",))
    )
    return max(counts.rows + counts.key_changes - applied, 0)  # a truncation may delete many rows


def _keeps_deleted(table: Table) -> bool:
    return not isinstance(table.write, Merge) or table.write.deletes == "soft"


def _rows(lines: "DataFrame") -> "DataFrame":
    marked = lines.withColumns(
        {DELETED: F.col(OPERATION) == Operation.DELETE.value, TRUNCATED: F.lit(False)}
    )
    return marked.drop(OPERATION, OLD_KEY, RAW, DIGEST, REASON, UNDECLARED)


def _changes(
    spark: "SparkSession",
    lines: "DataFrame",
    table: Table,
    counts: ChangeCounts,
    older: "DataFrame | None",
    facts: TableFacts | None,
) -> "DataFrame":
    """Upserts and deletions, one or more a key. A changed key deletes the old one; a truncation deletes every key in batch and table."""
    keys, good = change_keys(table), lines.where(f"{REASON} IS NULL")
    rows = _rows(good.where(F.col(OPERATION).isin(Operation.UPSERT.value, Operation.DELETE.value)))
    if counts.key_changes:
        old = {key: F.col(f"{OLD_KEY}.{quote(key)}") for key in keys}
        rows = rows.unionByName(
            _deletions(good.where(f"{OLD_KEY} IS NOT NULL"), rows, old, truncated=False)
        )
    told = [_truncations(good)] if counts.truncates else []
    known = (
        []
        if older is None or isinstance(table.landing.changes, Dms)
        else [older.where(TRUNCATED).select(*OWN, POSITION, CHANGED_AT)]
    )
    names = [*map(quote, keys)]
    hit = [rows.select(*names).distinct().crossJoin(marks) for marks in (*told, *known)]
    if told and facts is not None:
        hit.append(table_at(spark, facts.snapshot).select(*names).distinct().crossJoin(told[0]))
    cut = [
        _deletions(each, rows, {key: F.col(quote(key)) for key in keys}, truncated=True)
        for each in hit
    ]
    return reduce(lambda one, other: one.unionByName(other), [rows, *cut])


def _truncations(good: "DataFrame") -> "DataFrame":
    return good.where(F.col(OPERATION) == Operation.TRUNCATE.value).select(
        *OWN, POSITION, CHANGED_AT
    )


def _deletions(
    found: "DataFrame", rows: "DataFrame", keys: Mapping[str, "Column"], *, truncated: bool
) -> "DataFrame":
    """Deletions of keys at the places and positions of `found`, with the columns of `rows`, null where a key says nothing."""
    known = {
        **keys,
        **{name: F.col(name) for name in (*OWN, POSITION, CHANGED_AT)},
        DELETED: F.lit(True),
        TRUNCATED: F.lit(truncated),
    }
    return found.select(
        *[
            known.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name)
            for each in rows.schema.fields
        ]
    )


def _with_values(changes: "DataFrame", keys: Sequence[str], names: Sequence[str]) -> "DataFrame":
    """The changes, those that delete a key with the values of the last one before them in the batch that does not: all is told then."""
    from pyspark.sql import Window

    earlier = (
        Window.partitionBy(*map(quote, keys))
        .orderBy(F.struct(*ORDER))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    upsert = F.when(~F.col(DELETED), F.struct(F.lit(True).alias(_TOLD), *map(quote, names)))
    marked = changes.withColumn(_BEFORE, F.last(upsert, ignorenulls=True).over(earlier))
    is_told = F.col(DELETED) & F.col(_BEFORE).isNotNull()
    filled = {
        name: F.when(is_told, F.col(f"{_BEFORE}.{quote(name)}")).otherwise(F.col(quote(name)))
        for name in names
    }
    return marked.withColumns({**filled, _TOLD: is_told}).drop(_BEFORE)


def _without_fallbacks(changes: "DataFrame", names: Sequence[str]) -> "DataFrame":
    """The changes; a deletion has no values where each is null or what stands for one that was not told.

    For a column that is NOT NULL, and that Postgres leaves out of a deletion, Debezium sends something empty, zero or the first of 1970.
    Source: Debezium, JdbcValueConverters, convertValue; PostgresValueConverter
    """
    if not names:
        return changes
    empty = F.col(DELETED)
    for field in changes.select(*map(quote, names)).schema.fields:
        value, kind = F.col(quote(field.name)), field.dataType
        match kind.typeName():
            case "string":
                is_fallback = value.isin(*_FALLBACK_TEXTS) | value.rlike(r"^0(\.0+)?$")
            case "binary":
                is_fallback = F.length(value) == 0
            case "date" | "timestamp" | "timestamp_ntz":
                is_fallback = value == F.lit("1970-01-01").cast(kind)
            case "array" | "map":
                is_fallback = F.size(value) == 0
            case "struct" | "variant":
                is_fallback = F.lit(False)
            case _:
                is_fallback = value == F.lit(0).cast(kind)
        empty = empty & (value.isNull() | is_fallback)
    return changes.withColumns({name: F.when(~empty, F.col(quote(name))) for name in names})


def _newest(changes: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    from pyspark.sql import Window

    newest_first = Window.partitionBy(*map(quote, keys)).orderBy(F.struct(*ORDER).desc())
    return (
        changes.withColumn(_RANK, F.row_number().over(newest_first))
        .where(f"{_RANK} = 1")
        .drop(_RANK)
    )


def _remember(
    lake: Lake,
    table: Table,
    number: int,
    changes: "DataFrame",
    lines: "DataFrame",
    older: "DataFrame | None",
) -> None:
    """The deletions among the changes, and the truncations among the lines; these stand for the keys that they delete."""
    names = [*map(quote, change_keys(table))]
    columns = [*names, *OWN, POSITION, CHANGED_AT, TRUNCATED]
    deleted = changes.where(f"{DELETED} AND NOT {TRUNCATED}").select(*columns)
    marks = _truncations(lines.where(f"{REASON} IS NULL")).withColumn(TRUNCATED, F.lit(True))
    found = deleted.unionByName(marks, allowMissingColumns=True)
    remember(lake, table.key, number, found, older, hours=table.landing.change_data.lateness_hours)


def _versions(
    spark: "SparkSession",
    changes: "DataFrame",
    keys: Sequence[str],
    within: tuple[str, ...],
    facts: TableFacts | None,
) -> "DataFrame":
    """The versions of these keys that are new, or hold at another time than the table says."""
    from pyspark.sql import Window

    by, there = [*map(quote, keys)], (*HISTORY_COLUMNS, *OWN[:2])
    was = "STRUCT<valid_from: TIMESTAMP, valid_to: TIMESTAMP, is_current: BOOLEAN, _source_file: STRING, _source_line: BIGINT>"
    rows = changes.drop(TRUNCATED).withColumn(_WAS, F.lit(None).cast(was))
    if facts is not None:
        touched = table_at(spark, facts.snapshot, within=within).join(
            changes.select(*by).distinct(), [*keys], "left_semi"
        )
        rows = rows.unionByName(touched.withColumn(_WAS, F.struct(*there)).drop(*HISTORY_COLUMNS))
    rows = _newest(rows, (*keys, POSITION))
    ordered = Window.partitionBy(*by).orderBy(F.struct(*ORDER))
    following = ordered.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    rows = rows.withColumn("valid_from", F.min(F.coalesce(CHANGED_AT, OWN[2])).over(following))
    next_from = F.lead("valid_from").over(ordered)
    rows = rows.withColumn(
        "valid_to", F.when(F.col(DELETED), F.col("valid_from")).otherwise(next_from)
    )
    rows = rows.withColumn("is_current", F.col("valid_to").isNull() & ~F.col(DELETED))
    return rows.where(~F.col(_WAS).eqNullSafe(F.struct(*there))).drop(_WAS)
