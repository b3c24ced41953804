"""Fills in values that an update did not send because the values did not change.

1. Take the value of each unsent column from the key's previous change, which is in the batch or in
   the table.
2. Record in the column `KEPT` which change sent each kept value. If an older change arrives later
   and belongs between that change and this update, its value replaces the kept value.

**Safety properties**
- A value is taken only from a change of the same key, newer than the key's last known deletion. If
  there is no such value, or if it is null, the update goes to quarantine: Postgres omits only large
  values, and a null is not large. (An update that is older than the table's row has no effect, so
  its values need not be known.) A value that a row of the table already keeps stays if
  a deletion of the key arrives late (see `_with_kept_values`).
- The value of a column depends only on the set of changes, not on the order of their arrival.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.cdc.deleted_keys import refuse_late, remembered_deletions
from lakehouse.cdc.read import (
    DELETED,
    KEPT,
    UNSENT,
    ChangeBatch,
    ChangeCounts,
    batch_changes,
    change_keys,
    change_order,
    count_changes,
)
from lakehouse.declare.table import Table
from lakehouse.land.parse_lines import ORIGIN, REASON
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import with_members_of
from lakehouse.spark.statements import literal, quote
from lakehouse.write.commit_rows import checkpointed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ORDER = "_lakehouse_order"
_DELETED_AT = "_lakehouse_deleted_at"
_IS_OF_TABLE = "_lakehouse_is_of_table"
_NEWEST_OF_TABLE = "_lakehouse_newest_of_table"
_UNKNOWN = "_lakehouse_unknown"
_FILLED = "_lakehouse_filled"
_KEPT_BEFORE = "_lakehouse_kept_before"


def checked_changes(load: ChangeBatch, lines: "DataFrame") -> "tuple[DataFrame, ChangeCounts]":
    """Checks the lines against the table as it was before this batch; fills in unsent values.

    Lines that arrived too late, or whose unsent values are unknown, get a reason.
    """
    lines = refuse_late(load, lines)
    counts = count_changes(lines, load.keys)
    if counts.unsent:
        lines = _fill_unsent(load, lines, counts)
        counts = count_changes(lines, load.keys)
    # The table gets the column `KEPT` with the first row that keeps a value.
    if not counts.kept and not _has_kept(load):
        lines = lines.drop(KEPT)
    return lines, counts


def _has_kept(load: ChangeBatch) -> bool:
    columns = () if load.facts is None else load.facts.snapshot.columns
    return any(column.name == KEPT for column in columns)


def _fill_unsent(load: ChangeBatch, lines: "DataFrame", counts: ChangeCounts) -> "DataFrame":
    """Fills in each unsent value of the lines, or adds a reason if the value is unknown."""
    table = load.session.table
    key_columns = [*map(quote, load.keys)]
    changes = batch_changes(load, lines, counts)
    touched = changes.where(f"{UNSENT} IS NOT NULL").select(*key_columns).distinct()
    rows = changes.join(touched, [*load.keys], "left_semi")
    earlier: list[DataFrame] = []
    if load.facts is not None:
        earlier.append(load.table_rows(counts.within))
        remembered = remembered_deletions(load.session, load.batch)
        if remembered is not None:
            earlier.append(remembered.withColumn(DELETED, F.lit(True)))
    rows = _with_table(rows, [each.join(touched, [*load.keys], "left_semi") for each in earlier])
    sent_columns = _sent_columns(changes, table)
    filled = _with_kept_values(rows, table, sent_columns)
    # If the table or a remembered deletion is newer, the change has no effect, and its values need
    # not be known.
    has_effect = F.coalesce(F.col(_NEWEST_OF_TABLE) < F.col(_ORDER), F.lit(True))
    filled = filled.withColumn(_UNKNOWN, F.when(has_effect, F.col(_UNKNOWN)))
    names = [*sent_columns, *table.landing.derived, KEPT]
    values = F.struct(*map(quote, [*names, _UNKNOWN]))
    record_id = [*ORIGIN[:2]]
    # Without the checkpoint, each action on the lines would compute these windows again.
    filled = filled.where(f"{UNSENT} IS NOT NULL").select(*record_id, values.alias(_FILLED))
    filled = checkpointed(filled)
    joined = lines.join(filled, record_id, "left")
    is_filled = F.col(_FILLED).isNotNull()
    columns = dict[str, "Column"]()
    for name in names:
        filled_value = F.col(f"{_FILLED}.{quote(name)}")
        columns[name] = F.when(is_filled, filled_value).otherwise(F.col(quote(name)))
    reason = F.concat(
        F.lit("field "),
        F.col(f"{_FILLED}.{_UNKNOWN}"),
        F.lit(
            " was not sent (__debezium_unavailable_value), and no older value of its row is known. "
            "Use REPLICA IDENTITY FULL at the source, and write the row again"
        ),
    )
    return joined.withColumns({**columns, REASON: F.coalesce(REASON, reason)}).drop(_FILLED)


def corrected_rows(
    load: ChangeBatch, changes: "DataFrame", within: tuple[str, ...]
) -> "DataFrame | None":
    """The table's rows with kept values that a late, older change of their key corrects.

    `None` if no row of the table keeps a value.
    """
    if not _has_kept(load):
        return None
    table = load.session.table
    key_columns = [*map(quote, load.keys)]
    keeping = load.table_rows(within).where(f"{KEPT} IS NOT NULL")
    keeping = keeping.join(changes.select(*key_columns).distinct(), [*load.keys], "left_semi")
    rows = changes.join(keeping.select(*key_columns), [*load.keys], "left_semi")
    rows = _with_table(rows, [keeping]).withColumn(_KEPT_BEFORE, F.col(KEPT))
    filled = _with_kept_values(rows, table, _sent_columns(changes, table))
    is_other = ~F.col(KEPT).eqNullSafe(F.col(_KEPT_BEFORE))
    corrected = filled.where(F.col(_IS_OF_TABLE) & ~F.col(DELETED) & is_other)
    return corrected.select(*map(quote, changes.columns))


def _with_kept_values(rows: "DataFrame", table: Table, names: Sequence[str]) -> "DataFrame":
    """Fills in the kept values of these columns, and computes derived columns again.

    `rows` has all known changes of each key. `_UNKNOWN` names an unsent column for which no value
    was found.
    """
    from pyspark.sql import Window

    by_key = Window.partitionBy(*map(quote, change_keys(table)))
    until_now = by_key.orderBy(_ORDER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rows = rows.withColumn(_ORDER, F.expr(change_order()))
    last_deletion = F.max(F.when(F.col(DELETED), F.col(_ORDER))).over(until_now)
    rows = rows.withColumn(_DELETED_AT, last_deletion)
    table_order = F.when(F.col(_IS_OF_TABLE), F.col(_ORDER))
    rows = rows.withColumn(_NEWEST_OF_TABLE, F.max(table_order).over(by_key))
    values: dict[str, Column] = {}
    entries: list[Column] = []
    for name in names:
        own_value = F.col(quote(name))
        # The order of the change that sent the value, if the row keeps an older one.
        is_own = f"entry -> entry.column = {literal(name)}"
        since = F.expr(f"get(filter({KEPT}, {is_own}), 0).since")
        is_unsent = F.coalesce(F.array_contains(UNSENT, name), F.lit(False))
        # The order of the change that sent the row's value; null if its value is not known.
        origin = (
            F.when(F.col(DELETED), None)
            .when(since.isNotNull(), since)
            .when(~is_unsent, F.col(_ORDER))
        )
        sent = F.when(origin.isNotNull(), F.struct(origin.alias("since"), own_value.alias("value")))
        last = F.max_by(sent, origin).over(until_now)
        is_kept = ~F.col(DELETED) & (is_unsent | since.isNotNull())
        is_after_deletion = last.getField("since") > F.col(_DELETED_AT)
        # A row of the table keeps its value even if an earlier deletion arrives late, because the
        # insert that followed the deletion has not arrived yet, either.
        is_found = since.isNotNull() | F.coalesce(is_after_deletion, F.lit(True))
        is_found = is_found & last.getField("value").isNotNull()
        entry = F.struct(F.lit(name).alias("column"), last.getField("since").alias("since"))
        kept_value = F.when(is_found, last.getField("value"))
        values[name] = F.when(is_kept, kept_value).otherwise(own_value)
        entries.append(F.when(is_kept & is_found, entry))
    kept = F.array_compact(F.array(*entries)) if entries else F.col(KEPT)
    values[KEPT] = F.when(F.size(kept) > 0, kept)
    # All columns are replaced at once, because the windows read the original rows.
    rows = rows.withColumns(values)
    no_names = F.array().cast("array<string>")
    missing = F.array_except(UNSENT, F.coalesce(F.col(KEPT).getField("column"), no_names))
    rows = rows.withColumn(_UNKNOWN, F.get(missing, 0))
    derived = dict[str, "Column"]()
    for name, expression in table.landing.derived.items():
        derived_again = F.when(F.col(KEPT).isNotNull(), F.expr(expression))
        derived[name] = derived_again.otherwise(F.col(quote(name)))
    return rows.withColumns(derived) if derived else rows


def _sent_columns(rows: "DataFrame", table: Table) -> list[str]:
    """The columns whose values the source sends, or leaves out."""
    others = {*change_keys(table), *table.landing.derived}
    return [name for name in rows.columns if name not in others and not name.startswith("_")]


def _with_table(rows: "DataFrame", earlier: "Sequence[DataFrame]") -> "DataFrame":
    """Adds `earlier` rows, of the table and of remembered deletions, marked as `_IS_OF_TABLE`."""
    # The table may not have all declared members yet.
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    rows = rows.withColumn(_IS_OF_TABLE, F.lit(False))
    for each in earlier:
        each = with_members_of(each, types)
        marked = each if DELETED in each.columns else each.withColumn(DELETED, F.lit(False))
        columns = [name for name in rows.columns if name in marked.columns]
        earlier_rows = marked.select(*map(quote, columns)).withColumn(_IS_OF_TABLE, F.lit(True))
        rows = rows.unionByName(earlier_rows, allowMissingColumns=True)
    return rows
