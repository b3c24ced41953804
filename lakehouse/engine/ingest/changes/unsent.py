"""Values that the source did not send with an update, because they did not change: the row keeps them from before.

1. The values of a batch's unsent columns are taken from the change before it: in the batch, in the table, or late in both.
2. The column `KEPT` says from which change each of them is, so that one between the two may still arrive late and take
   effect.

**Safety properties**
- A value is kept only from a change of the same key after its last known deletion. A value that is not found, or is null,
  is unknown: Postgres leaves out only large values, and null is none. Such an update goes to quarantine.
- What a column has depends on the set of changes alone, not on the order in which they arrive.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Merge, Table
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.ingest.batches import Batch
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.changes.columns import DELETED, IS_MENDED, KEPT, UNSENT
from lakehouse.engine.ingest.changes.deleted_keys import refuse_late, remembered
from lakehouse.engine.ingest.changes.order import change_order
from lakehouse.engine.ingest.changes.read import ChangeCounts, change_keys, count_changes
from lakehouse.engine.ingest.changes.rows import TRUNCATED, batch_changes
from lakehouse.engine.ingest.parse_lines import OWN, REASON
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.key_range import checkpointed
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ORDER, _DELETED_AT = "_lakehouse_order", "_lakehouse_deleted_at"
_IS_OF_TABLE, _NEWEST_OF_TABLE = "_lakehouse_is_of_table", "_lakehouse_newest_of_table"
_UNKNOWN, _FILLED, _WAS_KEPT = "_lakehouse_unknown", "_lakehouse_filled", "_lakehouse_was_kept"
# Postgres stores a large value apart only if its type has no fixed length.
_LARGE = ("string", "varchar", "char", "binary", "decimal", "array", "map", "struct", "variant")


def changes_of_batch(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    lines: "DataFrame",
    facts: TableFacts | None,
) -> "tuple[DataFrame, ChangeCounts]":
    """The lines held against the table before the batch: late rows refused, unsent values kept; and their counts."""
    lines = refuse_late(lake, spark, table, batch, lines, facts)
    counts = count_changes(lines, change_keys(table))
    if counts.unsent:
        lines = keep_unsent(lake, spark, table, batch, lines, counts, facts)
        counts = count_changes(lines, change_keys(table))
    return _without_kept(lines, counts, None if facts is None else facts.snapshot), counts


def keep_unsent(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    batch: Batch,
    lines: "DataFrame",
    counts: ChangeCounts,
    facts: TableFacts | None,
) -> "DataFrame":
    """The lines of a batch, each unsent value as it was before, or a reason where it is unknown; `facts` are from before the batch."""
    keys = change_keys(table)
    older = None if facts is None else remembered(lake, spark, table.key, batch)
    changes = batch_changes(spark, lines, table, counts, older, facts)
    touched = changes.where(f"{UNSENT} IS NOT NULL").select(*map(quote, keys)).distinct()
    rows = changes.join(touched, [*keys], "left_semi")
    names = large_columns(changes, table)
    known: list[DataFrame] = []
    if facts is not None:
        known.append(table_at(spark, facts.snapshot, within=_within(keys, counts)))
    if older is not None:
        known.append(older.where(f"NOT {TRUNCATED}").withColumn(DELETED, F.lit(True)))
    rows = _with_table(rows, [each.join(touched, [*keys], "left_semi") for each in known])
    filled = with_kept_values(rows, table, names)
    if isinstance(table.write, Merge):
        # The row in the table, or a remembered deletion, is newer: the change has no effect, so that nothing need be known.
        filled = filled.withColumn(
            _UNKNOWN,
            F.when(
                F.coalesce(F.col(_NEWEST_OF_TABLE) < F.col(_ORDER), F.lit(True)), F.col(_UNKNOWN)
            ),
        )
    names = [*names, *table.landing.derived, KEPT]
    values = F.struct(*map(quote, [*names, _UNKNOWN]))
    places = [*OWN[:2]]
    # Each action on the lines would compute these windows again.
    filled_places = filled.where(f"{UNSENT} IS NOT NULL").select(*places, values.alias(_FILLED))
    found = checkpointed(filled_places)
    joined = lines.join(found, places, "left")
    is_filled = F.col(_FILLED).isNotNull()
    columns = {
        name: F.when(is_filled, F.col(f"{_FILLED}.{quote(name)}")).otherwise(F.col(quote(name)))
        for name in names
    }
    why = F.concat(
        F.lit("field "),
        F.col(f"{_FILLED}.{_UNKNOWN}"),
        F.lit(
            " was not sent (__debezium_unavailable_value), and no older value of its row is known: use REPLICA IDENTITY FULL at "
            "the source, and have the row written again"
        ),
    )
    return joined.withColumns({**columns, REASON: F.coalesce(REASON, why)}).drop(_FILLED)


def _without_kept(
    lines: "DataFrame", counts: ChangeCounts, snapshot: Snapshot | None
) -> "DataFrame":
    """The lines without `KEPT`, unless the table has it or gets it with the first row that keeps a value."""
    is_there = snapshot is not None and any(column.name == KEPT for column in snapshot.columns)
    return lines if counts.kept or is_there else lines.drop(KEPT)


def mended_rows(
    spark: "SparkSession",
    table: Table,
    changes: "DataFrame",
    snapshot: Snapshot,
    within: Sequence[str],
) -> "DataFrame | None":
    """Rows of the table that keep another value by these changes, though none of them is newer; `None` if the table keeps none."""
    if all(column.name != KEPT for column in snapshot.columns):
        return None
    keys = [*change_keys(table)]
    by_key = [*map(quote, keys)]
    there = table_at(spark, snapshot, within=within).where(f"{KEPT} IS NOT NULL")
    there = there.join(changes.select(*by_key).distinct(), keys, "left_semi")
    rows = changes.join(there.select(*by_key), keys, "left_semi")
    rows = _with_table(rows, [there]).withColumn(_WAS_KEPT, F.col(KEPT))
    filled = with_kept_values(rows, table, large_columns(changes, table))
    is_other = ~F.col(KEPT).eqNullSafe(F.col(_WAS_KEPT))
    mended = filled.where(F.col(_IS_OF_TABLE) & ~F.col(DELETED) & is_other)
    return mended.select(*map(quote, changes.columns)).withColumn(IS_MENDED, F.lit(True))


def with_kept_values(rows: "DataFrame", table: Table, names: Sequence[str]) -> "DataFrame":
    """The rows of whole keys, each with the values that it keeps in these columns; one that stays unknown is named."""
    from pyspark.sql import Window

    by_key = Window.partitionBy(*map(quote, change_keys(table)))
    until_now = by_key.orderBy(_ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn(_ORDER, F.expr(change_order()))
    rows = rows.withColumn(
        _DELETED_AT, F.max(F.when(F.col(DELETED), F.col(_ORDER))).over(until_now)
    )
    if _IS_OF_TABLE in rows.columns:
        of_table = F.when(F.col(_IS_OF_TABLE), F.col(_ORDER))
        rows = rows.withColumn(_NEWEST_OF_TABLE, F.max(of_table).over(by_key))
    values: dict[str, Column] = {}
    entries: list[Column] = []
    for name in names:
        own = F.col(quote(name))
        since = F.get(F.filter(KEPT, _is_for(name)), F.lit(0)).getField("since")
        is_unsent = F.coalesce(F.array_contains(UNSENT, name), F.lit(False))
        origin = (
            F.when(F.col(DELETED), F.lit(None))
            .when(since.isNotNull(), since)
            .when(~is_unsent, F.col(_ORDER))
        )
        sent = F.when(origin.isNotNull(), F.struct(origin.alias("since"), own.alias("value")))
        last = F.max_by(sent, origin).over(until_now)
        is_kept = ~F.col(DELETED) & (is_unsent | since.isNotNull())
        # What a row of the table keeps stays, also where a deletion before it comes late: an insert is still to come.
        is_found = since.isNotNull() | F.coalesce(
            last.getField("since") > F.col(_DELETED_AT), F.lit(True)
        )
        is_found = is_found & last.getField("value").isNotNull()
        entry = F.struct(F.lit(name).alias("column"), last.getField("since").alias("since"))
        values[name] = F.when(is_kept, F.when(is_found, last.getField("value"))).otherwise(own)
        entries.append(F.when(is_kept & is_found, entry))
    kept = F.array_compact(F.array(*entries)) if entries else F.col(KEPT)
    values[KEPT] = F.when(F.size(kept) > 0, kept)
    # Windows are over the rows as they were.
    rows = rows.withColumns(values)
    missing = F.array_except(
        UNSENT, F.coalesce(F.col(KEPT).getField("column"), F.array().cast("array<string>"))
    )
    rows = rows.withColumn(_UNKNOWN, F.get(missing, F.lit(0)))
    derived = {
        name: F.when(F.col(KEPT).isNotNull(), F.expr(text)).otherwise(F.col(quote(name)))
        for name, text in table.landing.derived.items()
    }
    return rows.withColumns(derived) if derived else rows


def _is_for(name: str):
    return lambda entry: entry.getField("column") == name


def large_columns(rows: "DataFrame", table: Table) -> list[str]:
    """The columns that may have values which are not sent."""
    others = {*change_keys(table), *table.landing.derived}
    return [
        field.name
        for field in rows.schema.fields
        if not field.name.startswith("_")
        and field.name not in others
        and field.dataType.typeName().partition("(")[0] in _LARGE
    ]


def _with_table(rows: "DataFrame", known: "Sequence[DataFrame]") -> "DataFrame":
    """The rows, and those of the table or of remembered deletions with the same columns."""
    rows = rows.withColumn(_IS_OF_TABLE, F.lit(False))
    for each in known:
        found = each if DELETED in each.columns else each.withColumn(DELETED, F.lit(False))
        columns = [name for name in rows.columns if name in found.columns]
        marked = found.select(*map(quote, columns)).withColumn(_IS_OF_TABLE, F.lit(True))
        rows = rows.unionByName(marked, allowMissingColumns=True)
    return rows


def _within(keys: Sequence[str], counts: ChangeCounts) -> tuple[str, ...]:
    return () if counts.first_key is None else (statements.between(keys[0], *counts.first_key),)
