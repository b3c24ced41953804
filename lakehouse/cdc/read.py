"""Parses staged records of AWS DMS or Debezium as changes, or gives a reason why one is none.

The letters of operations and the columns that DMS adds are in `declare/change_sources.py`.

**Safety properties** (tests in `cdc/test_read.py`)
- Every record is a change, is a tombstone that follows a deletion, or has a reason why it is
  neither.
- The operation, key or position of a record is never guessed: if one of them is missing, the record
  goes to quarantine.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from lakehouse.cdc.columns import (
    CHANGED_AT,
    CODE,
    HAS_POSITION,
    KEPT,
    OLD_KEY,
    OPERATION,
    POSITION,
    UNSENT,
    change_order,
)
from lakehouse.cdc.plan.event import TOMBSTONE
from lakehouse.cdc.plan.event import UNSENT as UNSENT_MEMBER
from lakehouse.declare.change_sources import ChangeKind, Debezium, Dms
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Merge
from lakehouse.delta.columns import field_names, field_types
from lakehouse.land.parse_lines import (
    CORRUPT,
    DIGEST,
    EVENT,
    ORIGIN,
    PARSED,
    RAW,
    REASON,
    parse_records,
    parsed_json,
    undeclared_columns,
    undeclared_names,
    why_derived_unfit,
    why_other_years,
    why_undeclared_unfit,
    with_undeclared,
)
from lakehouse.land.plan.records import UNFIT
from lakehouse.land.plan.undeclared import RESCUED
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ONLY_TIMED = (
    "this row of a snapshot has no position, and its time may be later than the time of a newer"
    " change. Use Debezium(position=…) with fields of source that order changes, for example 'scn"
    " BIGINT' (Oracle) or 'commit_lsn STRING, change_lsn STRING' (SQL Server, Db2). For unwrapped"
    " rows, add.fields=op shows which rows are of a snapshot"
)
# Times from the year 1 to 9999. Source: Spark's reference, TIMESTAMP
_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
_SOURCE_DDL = "lsn BIGINT, file STRING, pos BIGINT, row INT"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """The event of a line, parsed into the column `PARSED`."""

    changes: Debezium

    def field(self, path: str) -> "Column":
        """A field of the event."""
        return F.col(f"{PARSED}.{path}")

    def source(self, name: str) -> "Column":
        """A field of the event's `source`. It is cast from text: some connectors quote numbers.

        Source: Debezium's reference, "New Record State Extraction", `add.fields`; connector for
        Oracle, `source.scn`.
        """
        value = self.field(f"source.{quote(name)}")
        if self.changes.unwrapped:
            prefixed = self.field(quote(f"__source_{name}"))
            value = F.coalesce(prefixed, self.field(quote(f"__{name}")))
        return value.cast(_source_types(self.changes)[name])

    def code(self) -> "Column":
        """The operation's letter; null if unknown.

        An unwrapped row with a true `__deleted` is a deletion. If it has no `__op`, a false
        `__deleted` makes it an update.
        """
        if not self.changes.unwrapped:
            return self.field("op")
        deleted = F.lower(self.field("__deleted"))
        return F.when(deleted == "true", F.lit("d")).otherwise(
            F.coalesce(self.field("__op"), F.when(deleted == "false", F.lit("u")))
        )

    def value(self, name: str) -> "Column":
        """A column of the row after the change; for a deletion, before it."""
        if self.changes.unwrapped:
            return self.field(quote(name))
        return F.when(self.code() == "d", self.field(f"before.{quote(name)}")).otherwise(
            self.field(f"after.{quote(name)}")
        )

    def committed_ms(self) -> "Column":
        """When the change was committed; null if the time is missing or invalid.

        If an event that is not unwrapped lacks this time, it is when Debezium saw the change.
        """
        time_ms = self.source("ts_ms")
        if not self.changes.unwrapped:
            time_ms = F.coalesce(time_ms, self.field("ts_ms"))
        return F.when(time_ms.between(_FIRST_MS, _LAST_MS), time_ms)

    def position(self) -> "tuple[Column, Column]":
        """The position, and whether the event has one.

        A snapshot row with only a time has no position. Its time is when the row was sent or the
        snapshot began, and may be later than a change that the row does not include: Oracle reads
        an initial snapshot as of an earlier SCN. Source: Debezium's
        AbstractIncrementalSnapshotChangeEventSource, sendEvent;
        RelationalSnapshotChangeEventSource, getSnapshotSourceTimestamp.
        """
        names = field_names(self.changes.position)
        if names:
            declared = F.struct(*[self.source(name).alias(name) for name in names])
            # A snapshot row without the other parts sorts before changes that have these parts.
            return declared, self.source(names[0]).isNotNull()
        # MySQL numbers the files of its binlog, in names of any length.
        file_suffix = F.regexp_extract(self.source("file"), r"(\d+)$", 1)
        file_number = F.nullif(file_suffix, F.lit("")).cast("bigint")
        parts = {"lsn": self.source("lsn"), "file_number": file_number}
        parts |= {name: self.source(name) for name in ("pos", "row", "ts_ms")}
        time_of_change = F.when(self.is_change(), parts["ts_ms"])
        has_position = F.coalesce(parts["lsn"], file_number, time_of_change).isNotNull()
        return F.struct(*[part.alias(name) for name, part in parts.items()]), has_position

    def is_change(self) -> "Column":
        """Whether the event comes from the source's log and not from a snapshot.

        An unwrapped row without `__op` counts as one of a snapshot, unless it is a deletion.
        """
        if not self.changes.unwrapped:
            return F.coalesce(self.code() != "r", F.lit(True))
        return F.coalesce(
            self.field("__op") != "r", F.lower(self.field("__deleted")) == "true", F.lit(False)
        )

    def reason(self, landing: Landing, added: Sequence[str]) -> "Column":
        """Why a line is not a valid event, or null. `read._reason` checks the rest."""
        is_event = F.col(EVENT) != TOMBSTONE
        is_corrupt = F.col(PARSED).isNull() | self.field(CORRUPT).isNotNull()
        reason = F.when(is_event & is_corrupt, UNFIT)
        reason = why_other_years(reason, landing, self.value)
        reason = why_undeclared_unfit(reason, landing, added)
        _, has_position = self.position()
        has_only_time = ~has_position & self.source("ts_ms").isNotNull()
        return F.coalesce(REASON, reason.when(has_only_time & ~self.is_change(), _ONLY_TIMED))


def debezium_lines(
    lines: "DataFrame", table: Table, changes: Debezium, added: Sequence[str]
) -> "DataFrame":
    """The lines with their code, position, time and old key."""
    landing = table.landing
    fields = field_names(landing.schema)
    event_ddl = _event_ddl(landing.schema, changes)
    ddl = f"{event_ddl}, {quote(UNSENT_MEMBER)} ARRAY<STRING>, {CORRUPT} STRING"
    event = _Event(changes=changes)
    parsed_event = parsed_json(F.when(F.col(REASON).isNull(), F.col(EVENT)), ddl)
    position, has_position = event.position()
    old_key = list["Column"]()
    for key in change_keys(table):
        old_value = F.lit(None) if changes.unwrapped else event.field(f"before.{quote(key)}")
        old_key.append(old_value.alias(key))
    parsed = with_undeclared(lines).withColumn(PARSED, evaluated_once(parsed_event))
    rows = parsed.select(
        *[event.value(name).alias(name) for name in fields],
        *ORIGIN,
        *undeclared_columns(landing, added),
        RAW,
        DIGEST,
        EVENT,
        event.reason(landing, added).alias(REASON),
        event.code().alias(CODE),
        position.alias(POSITION),
        has_position.alias(HAS_POSITION),
        F.timestamp_millis(event.committed_ms()).alias(CHANGED_AT),
        F.struct(*old_key).alias(OLD_KEY),
        event.field(quote(UNSENT_MEMBER)).alias(UNSENT),
    )
    derived = {name: F.expr(text) for name, text in landing.derived.items()}
    return rows.withColumns(derived) if derived else rows


def _source_types(changes: Debezium) -> dict[str, str]:
    return {"ts_ms": "BIGINT", **dict(field_types(changes.position or _SOURCE_DDL))}


def _event_ddl(schema: str, changes: Debezium) -> str:
    names = _source_types(changes)
    if not changes.unwrapped:
        source = ", ".join(f"{quote(name)} STRING" for name in names)
        return (
            f"op STRING, before STRUCT<{schema}>, after STRUCT<{schema}>, "
            f"source STRUCT<{source}>, ts_ms BIGINT"
        )
    metadata = ", ".join(
        f"{quote(f'__source_{name}')} STRING, {quote(f'__{name}')} STRING" for name in names
    )
    return f"{schema}, __op STRING, __deleted STRING, {metadata}"


# The names of full-load files, which have a hexadecimal number. Names of other files have a time.
# Source: AWS DMS user guide, "Using Amazon S3 as a target"
FULL_LOAD = r"(^|/)LOAD[0-9A-Fa-f]*\.[^/]*$"


def is_full_load_file(name: str) -> bool:
    """Whether DMS wrote a file with this name in a full load."""
    return re.search(FULL_LOAD, name) is not None


def dms_lines(
    lines: "DataFrame", table: Table, changes: Dms, added: Sequence[str], names: Sequence[str]
) -> "DataFrame":
    """The lines with their code, position, time and old key. `names`: the names of their files.

    A full-load row has a position of nulls, which sorts before every other position.
    """
    landing = table.landing
    # `read._reason` checks required fields, because a deletion may lack them.
    lines = parse_records(replace(landing, required=()), lines, added, ())
    is_full_load = F.col(ORIGIN[0]).rlike(FULL_LOAD)
    kinds = {*map(is_full_load_file, names)}
    if len(kinds) == 1:
        is_full_load = F.lit(kinds.pop())
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
    for key in change_keys(table):
        before_image = f"{changes.before_prefix}{key}"
        old_value = F.col(quote(before_image)) if before_image in fields else F.lit(None)
        old_key.append(old_value.alias(key))
    code_of_full_load = F.when(is_full_load, F.lit("I"))
    commit_time = F.lit(None)
    if changes.committed_at is not None:
        commit_time = F.col(quote(changes.committed_at))
    return lines.withColumns(
        {
            CODE: F.coalesce(_filled(F.col(quote(changes.operation))), code_of_full_load),
            POSITION: position,
            HAS_POSITION: is_full_load | is_ordered,
            CHANGED_AT: commit_time.cast("timestamp"),
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
    assert isinstance(table.write, Merge)
    return table.write.keys


def read_changes(
    table: Table, lines: "DataFrame", added: Sequence[str], names: Sequence[str]
) -> "DataFrame":
    """One row per line of `staged_lines`, with the columns of the table and of a change.

    `names` are the names of the lines' files.
    """
    landing = table.landing
    keys = change_keys(table)
    is_tombstone = F.lit(False)
    match landing.change_data:
        case Dms() as changes:
            lines = dms_lines(lines, table, changes, added, names)
            lines = lines.withColumn(UNSENT, F.lit(None).cast("array<string>"))
        case Debezium() as changes:
            lines = debezium_lines(lines, table, changes, added)
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
        "deletes": is_good & ((operation == ChangeKind.DELETE.value) | has_old_key),
        "truncates": is_good & (operation == ChangeKind.TRUNCATE.value),
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
    has_key = ~is_tombstone & (operation != ChangeKind.TRUNCATE.value)
    reason = F.when(~is_tombstone & F.col(CODE).isNull(), "the operation is missing")
    unknown = F.concat(F.lit("the operation "), F.col(CODE), F.lit(f" is not one of {known_codes}"))
    reason = reason.when(operation.isNull(), unknown)
    for key in keys:
        reason = reason.when(has_key & F.col(quote(key)).isNull(), f"the key {key} is missing")
    is_unsent_and_moved = F.col(UNSENT).isNotNull() & F.col(OLD_KEY).isNotNull()
    reason = reason.when(is_unsent_and_moved, _WHY_MOVED)
    reason = reason.when(~is_tombstone & ~F.col(HAS_POSITION), "the position is missing")
    reason = why_derived_unfit(reason, table.landing)
    for name in table.landing.required:
        is_unsent = F.coalesce(F.array_contains(UNSENT, name), F.lit(False))
        is_missing = F.col(quote(name)).isNull() & ~is_unsent
        is_upsert = operation == ChangeKind.UPSERT.value
        reason = reason.when(is_upsert & is_missing, f"required field {name} is missing")
    return F.coalesce(REASON, reason)
