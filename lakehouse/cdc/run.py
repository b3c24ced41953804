"""Applies a batch of changes to a table, which has the newest row of each key.

1. Keep only the newest change per key.
2. For hard deletions, drop upserts that are older than a remembered deletion, and remember the
   deletions of the batch.
3. Write the rows in one MERGE under the batch's number. The first batch creates the table with an
   append.

If the first batch is a full load of large files in which no key occurs twice, its rows are appended
as they are read, without these steps (`full_load_rows`).

**Safety properties** (tests in `cdc/test_run.py`)
- Rows are appended as they are read only if there are as many different keys as rows. The write
  fails, and the batch is applied by the steps, if a line is not an upsert of a new row.
- A change takes effect only if it is newer than the table's row, and an upsert only if it is also
  newer than the remembered deletion of its key. (Exception: a late change may correct a value that
  the row keeps from an older change, see `corrected_rows`.)
- Deletions are remembered before the commit. A repeated batch writes the same deletions again.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.cdc.deleted_keys import forget, remember, remembered_deletions
from lakehouse.cdc.fill_unsent_values import corrected_rows
from lakehouse.cdc.read import (
    CHANGED_AT,
    DELETED,
    KEPT,
    OLD_KEY,
    POSITION,
    UNSENT,
    ChangeBatch,
    ChangeCounts,
    batch_changes,
    by_order,
    change_order,
    described_rows,
    is_full_load_file,
)
from lakehouse.declare.landing import Dms
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ingest_app_id
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import batch_commits
from lakehouse.land.parse_lines import ORIGIN, REASON
from lakehouse.spark import frames, statements
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import WHOLE_TYPES, Transaction, with_columns_of
from lakehouse.spark.statements import quote
from lakehouse.write import commit_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RANK = "_lakehouse_rank"
_LAST_ROW = "_lakehouse_last_row"
_MARKS_ONLY = "_lakehouse_marks_only"
# The columns that a soft deletion changes in the table's row.
_MARK = (DELETED, POSITION, CHANGED_AT, *ORIGIN)
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


def changed_rows(lines: "DataFrame", table: Table) -> "DataFrame":
    """The row that each change describes on its own, with the columns of the table."""
    return _first_rows(described_rows(lines).drop(UNSENT), table)


def _first_rows(changes: "DataFrame", table: Table) -> "DataFrame":
    """The rows of a new table."""
    return changes if _keeps_deleted(table) else changes.where(f"NOT {DELETED}").drop(DELETED)


def full_load_rows(load: ChangeBatch, lines: "DataFrame") -> "DataFrame | None":
    """The lines of a full load into a new table, if each of them has a key of its own.

    Each line is marked as an upsert. A line that is not an upsert gets a reason.
    """
    table = load.session.table
    names = [file.name for file in load.batch.files]
    is_full_load = isinstance(table.landing.changes, Dms) and all(map(is_full_load_file, names))
    if load.facts is not None or not is_full_load:
        return None
    if _key_count(lines, load.keys) != load.batch.record_count:
        return None
    # Without a table, the deletions of an earlier table of this key do not count.
    forget(load.session.lake.store, table.key)
    is_upsert = ~F.col(DELETED) & F.col(OLD_KEY).isNull()
    reason = F.coalesce(REASON, F.when(~is_upsert, "it changes or deletes another row"))
    upserts = {REASON: reason, DELETED: F.lit(False)}
    return lines.withColumns(upserts).drop(KEPT)


def _key_count(lines: "DataFrame", keys: Sequence[str]) -> int:
    """The number of different keys. It reads only their columns."""
    groups = [F.col(quote(key)) for key in keys]
    bit = F.lit(1)
    if lines.schema[keys[-1]].dataType.typeName() in WHOLE_TYPES:
        # Numbers that are close to each other share a group, which has a bit for each of them.
        number = groups.pop().cast("bigint")
        groups.append(F.shiftright(number, 6))
        place = F.pmod(number, F.lit(64)).cast("int")
        bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), place)
    bits = lines.groupBy(*groups).agg(F.bit_or(bit).alias("bits"))
    return bits.select(F.sum(F.bit_count("bits"))).collect()[0][0]


def apply_changes(load: ChangeBatch, lines: "DataFrame", counts: ChangeCounts) -> None:
    """Commits the changes among the lines.

    The caller holds the table's lock, and checks afterwards that the table's log has the batch.
    """
    table = load.session.table
    if load.facts is None:
        # Without a table, the deletions of an earlier table of this key do not count.
        forget(load.session.lake.store, table.key)
    within = counts.within
    changes = batch_changes(load, lines, counts)
    if load.facts is not None:
        changes = with_columns_of(load.session.spark, load.facts.snapshot, changes)
    corrected = corrected_rows(load, changes, within)
    # A corrected row is as old as the table's row.
    replaces_row = by_order(">=")
    if _keeps_deleted(table):
        if load.facts is not None and counts.deletes:
            # A deletion keeps the values of the table's row, not the values of a change that is
            # older than the row.
            changes = _without_older(changes, load.table_rows(within), load.keys)
        if corrected is not None:
            changes = changes.unionByName(corrected)
        rows = _newest(_with_last_values(changes, load.keys), load.keys)
        action = statements.upsert_or_mark(replaces_row, marks_only=_MARKS_ONLY, mark=_MARK)
    else:
        remembered = remembered_deletions(load.session, load.batch)
        rows = _newest(changes, load.keys)
        # A remembered deletion takes effect again if it is landed again: a RESTORE may have undone
        # the deletion.
        rows = _without_older(rows, remembered, load.keys, condition=f"NOT source.{DELETED}")
        if counts.deletes:
            columns = [*map(quote, load.keys), *ORIGIN, POSITION, CHANGED_AT]
            deletions = rows.where(DELETED).select(*columns)
            remember(load.session, load.batch.number, deletions, remembered)
        if corrected is not None:
            rows = _newest(rows.unionByName(corrected), load.keys)
        action = statements.upsert_or_delete(replaces_row, deleted=DELETED)
    _commit(load, rows.drop(UNSENT), statements.same_keys(load.keys, within), action)


def _commit(load: ChangeBatch, rows: "DataFrame", condition: str, action: str) -> None:
    """Merges the rows under the batch's number, or creates the table from them."""
    session = load.session
    transaction = Transaction(app_id=ingest_app_id(session.key), version=load.batch.number)
    if load.facts is not None:
        frames.run_merge(rows, load.facts.snapshot, transaction, condition, action)
        return
    first_rows = _first_rows(rows.drop(_MARKS_ONLY), session.table)
    commit_rows.write_rows(session, first_rows, transaction)


def superseded_count(
    lake: Lake, key: str, counts: ChangeCounts, *, before: TableFacts | None, after: TableFacts
) -> int:
    """The number of changes without effect: repeated or older changes, and tombstones."""
    commits = batch_commits(lake, key, before=before, after=after)
    metrics = commits[-1].metrics if commits else {}
    names = _MERGED if "numTargetRowsInserted" in metrics else ("numOutputRows",)
    effective_count = sum(int(metrics.get(name, "0")) for name in names)
    return max(counts.rows + counts.key_changes - effective_count, 0)


def _keeps_deleted(table: Table) -> bool:
    """Whether a deletion marks the row of its key instead of removing it."""
    return table.merge is not None and table.merge.deletes == "soft"


def _without_older(
    changes: "DataFrame",
    known_rows: "DataFrame | None",
    keys: Sequence[str],
    *,
    condition: str = "true",
) -> "DataFrame":
    """Drops changes that meet the condition and are no newer than a known row of their key."""
    if known_rows is None:
        return changes
    is_older = f"{statements.same_keys(keys)} AND {by_order('<=')} AND {condition}"
    return changes.alias("source").join(known_rows.alias("target"), F.expr(is_older), "left_anti")


def _with_last_values(changes: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """Gives each deletion the values of the last row before it in the batch.

    A deletion without such a row has null values and `_MARKS_ONLY`, so that the table's row keeps
    its values. The values that the source sends with a deletion are not used, because Debezium
    sends zeros for columns that are `NOT NULL`.
    """
    from pyspark.sql import Window

    earlier = (
        Window.partitionBy(*map(quote, keys))
        .orderBy(F.expr(change_order()))
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    not_values = {*keys, *_MARK, UNSENT}
    names = [name for name in changes.columns if name not in not_values]
    # A struct needs a member, even if the table has no columns but keys.
    row = F.struct(F.lit(True).alias(_MARKS_ONLY), *map(quote, names))
    last_row = F.last(F.when(~F.col(DELETED), row), ignorenulls=True).over(earlier)
    changes = changes.withColumn(_LAST_ROW, last_row)
    values = dict[str, "Column"]()
    for name in names:
        last_value = F.col(f"{_LAST_ROW}.{quote(name)}")
        values[name] = F.when(F.col(DELETED), last_value).otherwise(F.col(quote(name)))
    marks_only = F.col(DELETED) & F.col(_LAST_ROW).isNull()
    return changes.withColumns({**values, _MARKS_ONLY: marks_only}).drop(_LAST_ROW)


def _newest(changes: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """The newest change of each key."""
    from pyspark.sql import Window

    newest_first = Window.partitionBy(*map(quote, keys)).orderBy(F.expr(change_order()).desc())
    ranked = changes.withColumn(_RANK, F.row_number().over(newest_first))
    return ranked.where(f"{_RANK} = 1").drop(_RANK)
