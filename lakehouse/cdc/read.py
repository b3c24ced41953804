"""Parses staged records of AWS DMS or Debezium as changes, or gives a reason why one is none.

The letters of operations and the columns that DMS adds are in `declare/change_sources.py`.

**Safety properties** (tests in `cdc/test_read.py`)
- Every record is a change, is a tombstone that follows a deletion, or has a reason why it is
  neither.
- The operation, key or position of a record is never guessed: if one of them is missing, the record
  goes to quarantine.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from lakehouse.cdc.columns import (
    CHANGED_AT,
    CODE,
    HAS_COMMIT_TIME,
    HAS_POSITION,
    KEPT,
    OLD_KEY,
    OPERATION,
    POSITION,
    UNSENT,
    change_order,
)
from lakehouse.cdc.debezium import debezium_lines
from lakehouse.cdc.plan.event import TOMBSTONE
from lakehouse.declare.change_sources import Debezium, Dms, Operation
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import History, Merge
from lakehouse.delta.column_names import field_names
from lakehouse.land.parse_lines import (
    DIGEST,
    EVENT,
    ORIGIN,
    RAW,
    REASON,
    parse_records,
    why_derived_unfit,
)
from lakehouse.land.plan.undeclared import RESCUED, AddedColumn
from lakehouse.land.undeclared_columns import undeclared_names
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The names of full-load files, which have a hexadecimal number. Names of other files have a time.
# Source: AWS DMS user guide, "Using Amazon S3 as a target"
FULL_LOAD = r"(^|/)LOAD[0-9A-Fa-f]*\.[^/]*$"


def dms_lines(
    lines: "DataFrame",
    landing: Landing,
    changes: Dms,
    keys: Sequence[str],
    added: Sequence[AddedColumn],
) -> "DataFrame":
    """The lines with their code, position, time and old key.

    A full-load row has a position of nulls, which sorts before every other position.
    """
    # `read._reason` checks required fields, because a deletion may lack them.
    lines = parse_records(replace(landing, required=()), lines, added, ())
    is_full_load = F.col(ORIGIN[0]).rlike(FULL_LOAD)
    parts = {name: F.col(quote(name)) for name in changes.position}
    if not parts:
        # DMS names a file after the time of its changes. The path comes after the name, because the
        # task's setting for folders by date may have changed.
        parts = {
            "file_name": F.substring_index(ORIGIN[0], "/", -1),
            "path": F.col(ORIGIN[0]),
            "line": F.col(ORIGIN[1]),
        }
    position = F.struct(*[F.when(~is_full_load, part).alias(name) for name, part in parts.items()])
    is_ordered = F.lit(True)
    for name in changes.position:
        is_ordered = is_ordered & _filled(F.col(quote(name))).isNotNull()
    fields = field_names(landing.schema)
    old_key = list["Column"]()
    for key in keys:
        before_image = f"{changes.before_prefix}{key}"
        old_value = F.col(quote(before_image)) if before_image in fields else F.lit(None)
        old_key.append(old_value.alias(key))
    code_of_full_load = F.when(is_full_load, F.lit("I"))
    commit_time = F.lit(None)
    if changes.committed_at is not None:
        commit_time = F.col(quote(changes.committed_at))
    committed = commit_time.cast("timestamp")
    return lines.withColumns(
        {
            CODE: F.coalesce(_filled(F.col(quote(changes.operation))), code_of_full_load),
            POSITION: position,
            HAS_POSITION: is_full_load | is_ordered,
            HAS_COMMIT_TIME: committed.isNotNull() | (is_full_load & _filled(commit_time).isNull()),
            CHANGED_AT: committed,
            OLD_KEY: F.struct(*old_key),
        }
    )


def _filled(value: "Column") -> "Column":
    """The text of a column, or null if it is blank."""
    return F.nullif(F.trim(value.cast("string")), F.lit(""))


# A line without an event, which follows a deletion so that Kafka can forget the key.
# Source: Debezium's reference, "Tombstone events"
_TOMBSTONE = "tombstone"
_WHY_MOVED = (
    "a value was not sent (__debezium_unavailable_value), and the key changed. Use REPLICA IDENTITY"
    " FULL at the source, and write the row again"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """Counts of a batch's records: `rows` are changes or tombstones, and `bad` records are neither.

    Of the rows, `rescued` have fields without a column, `unsent` lack a value, and `kept` keep an
    older value. An update that changes a key counts as one of `deletes`, too. `first_key` is the
    range of the first key column. It is `None` if the batch has no keys or also affects other keys,
    or if the column is neither an integer nor a string.
    """

    rows: int
    bad: int
    rescued: int
    deletes: int
    truncates: int
    key_changes: int
    unsent: int
    kept: int
    first_key: tuple[int, int] | tuple[str, str] | None = None


def change_keys(table: Table) -> tuple[str, ...]:
    """The keys of a table of change data."""
    assert isinstance(table.write, Merge | History)
    return table.write.keys


def read_changes(table: Table, lines: "DataFrame", added: Sequence[AddedColumn]) -> "DataFrame":
    """One row per line of `staged_lines`, with the columns of the table and of a change."""
    landing = table.landing
    keys = change_keys(table)
    is_tombstone = F.lit(False)
    match landing.change_data:
        case Dms() as changes:
            lines = dms_lines(lines, landing, changes, keys, added)
            lines = lines.withColumn(UNSENT, F.lit(None).cast("array<string>"))
        case Debezium() as changes:
            lines = debezium_lines(lines, landing, changes, keys, added)
            is_tombstone = F.coalesce(F.col(EVENT) == TOMBSTONE, F.lit(False))
        case _:
            assert_never(landing.change_data)
    codes = list["Column"]()
    for code, operation in changes.operations.items():
        codes += [F.lit(code), F.lit(operation.value)]
    known_operation = F.try_element_at(F.create_map(*codes), F.col(CODE))
    columns_of_change = {
        OPERATION: F.when(is_tombstone, _TOMBSTONE).otherwise(known_operation),
        OLD_KEY: _changed_key(keys, changes.update_code),
    }
    lines = lines.withColumns(columns_of_change)
    columns = [
        *landing.column_names,
        *ORIGIN,
        POSITION,
        CHANGED_AT,
        *undeclared_names(added),
        OPERATION,
        OLD_KEY,
        UNSENT,
        RAW,
        DIGEST,
    ]
    return lines.select(
        *map(quote, columns), _no_kept().alias(KEPT), _reason(table, keys).alias(REASON)
    )


def count_changes(lines: "DataFrame", keys: Sequence[str]) -> ChangeCounts:
    """Counts the records of a batch in one pass."""
    is_good = F.col(REASON).isNull()
    operation = F.col(OPERATION)
    has_old_key = F.col(OLD_KEY).isNotNull()
    conditions = {
        "rows": is_good,
        "bad": ~is_good,
        "rescued": is_good & F.col(RESCUED).isNotNull(),
        "deletes": is_good & ((operation == Operation.DELETE.value) | has_old_key),
        "truncates": is_good & (operation == Operation.TRUNCATE.value),
        "key_changes": is_good & has_old_key,
        "unsent": is_good & F.col(UNSENT).isNotNull(),
        "kept": is_good & F.col(KEPT).isNotNull(),
    }
    key = F.when(is_good, F.col(quote(keys[0])))
    figures = lines.select(*map(F.count_if, conditions.values()), F.min(key), F.max(key))
    *counts, least, greatest = figures.collect()[0]
    counts_by_name = dict(zip(conditions, counts, strict=True))
    # A truncation or a changed key affects keys that are not in the batch.
    has_all_keys = not counts_by_name["truncates"] and not counts_by_name["key_changes"]
    has_range = has_all_keys and type(least) in (int, str)
    first_key = (least, greatest) if has_range else None
    return ChangeCounts(**counts_by_name, first_key=first_key)


def _no_kept() -> "Column":
    """The column `KEPT`, null, for rows that keep no values.

    Its type is that of an array whose entries have a column's name and a `change_order`.
    """
    entry = F.struct(F.lit("").alias("column"), F.expr(change_order()).alias("since"))
    return F.when(F.lit(False), F.array(entry))


def _changed_key(keys: Sequence[str], update_code: str) -> "Column":
    """The key before an update that changed it, or null. An unknown key counts as unchanged."""
    old_key = F.col(OLD_KEY)
    is_known = F.col(CODE) == update_code
    is_same = F.lit(True)
    for key in keys:
        is_known = is_known & old_key.getField(key).isNotNull()
        is_same = is_same & old_key.getField(key).eqNullSafe(F.col(quote(key)))
    return F.when(is_known & ~is_same, old_key)


def _reason(table: Table, keys: Sequence[str]) -> "Column":
    """Why a line is not a change, or null. It reads the columns that `debezium` or `dms` adds."""
    operation = F.col(OPERATION)
    known_codes = ", ".join(table.landing.change_data.operations)
    is_tombstone = F.coalesce(operation == _TOMBSTONE, F.lit(False))
    has_key = ~is_tombstone & (operation != Operation.TRUNCATE.value)
    reason = F.when(F.col(REASON).isNotNull(), F.col(REASON))
    reason = reason.when(~is_tombstone & F.col(CODE).isNull(), "the operation is missing")
    unknown = F.concat(F.lit("the operation "), F.col(CODE), F.lit(f" is not one of {known_codes}"))
    reason = reason.when(operation.isNull(), unknown)
    for key in keys:
        reason = reason.when(has_key & F.col(quote(key)).isNull(), f"the key {key} is missing")
    is_unsent_and_moved = F.col(UNSENT).isNotNull() & F.col(OLD_KEY).isNotNull()
    reason = reason.when(is_unsent_and_moved, _WHY_MOVED)
    reason = reason.when(~is_tombstone & ~F.col(HAS_POSITION), "the position is missing")
    if isinstance(table.write, History):
        reason = reason.when(
            ~is_tombstone & ~F.col(HAS_COMMIT_TIME), "the time of the commit is missing or invalid"
        )
    reason = why_derived_unfit(reason, table.landing)
    for name in table.landing.required:
        is_unsent = F.coalesce(F.array_contains(UNSENT, name), F.lit(False))
        is_missing = F.col(quote(name)).isNull() & ~is_unsent
        is_upsert = operation == Operation.UPSERT.value
        reason = reason.when(is_upsert & is_missing, f"required field {name} is missing")
    return reason
