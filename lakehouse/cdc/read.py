"""Parses staged records of AWS DMS or Debezium as changes, or gives a reason why one is none.

1. Each record becomes a line with the columns of the table and of a change (`read_changes`).
2. The lines of a batch become upserts and deletions of keys (`batch_changes`).

The letters of operations and the columns that DMS adds are in `declare/landing.py`.

Changes are ordered by position. Changes of equal positions are ordered by arrival: by file, and
within a file by line. `run.py` keeps the newest change of each key.

**Safety properties** (tests in `cdc/test_read.py`)
- Every record is a change, is a tombstone that follows a deletion, or has a reason why it is
  neither.
- The operation, key or position of a record is never guessed: if one of them is missing, the record
  goes to quarantine.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from lakehouse.base.frozen import frozen
from lakehouse.cdc.plan.decode_debezium import TOMBSTONE, UNSENT
from lakehouse.declare.landing import Debezium, Dms, Landing
from lakehouse.declare.table import Table
from lakehouse.delta.columns import field_names, field_types
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import (
    CORRUPT,
    DIGEST,
    EVENT,
    ORIGIN,
    PARSED,
    RAW,
    REASON,
    UNDECLARED,
    parse_records,
    parsed_json,
    undeclared_names,
)
from lakehouse.land.plan.batches import Batch
from lakehouse.land.plan.records import RESCUED, UNFIT
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, table_at
from lakehouse.spark.statements import quote
from lakehouse.write.commit_rows import RANGE_TYPES, range_condition, range_ends

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


# In the tables that change data is written to.
POSITION = "_position"
CHANGED_AT = "_changed_at"
# Whether the change is a deletion. In the parsed lines, it is null for a tombstone, a line without
# an event that follows a deletion. Source: Debezium's reference, "Tombstone events"
DELETED = "_deleted"
# Names the columns whose values the row's change did not send, each with the order of the change
# that sent the value.
KEPT = "_kept"

# Only in the parsed lines.
# The key before an update that changed it. Parts that are unknown are null.
OLD_KEY = "_lakehouse_old_key"
CODE = "_lakehouse_code"
_EVENT_FIELDS = "_lakehouse_event_fields"


_FILE, _LINE, _LANDED_AT = ORIGIN
_DIGITS = 40
# A name that ends in two numbers: `topic+partition+offset` of Kafka Connect, or the date and time
# of AWS DMS. The last part of a UUID may look the same.
_NUMBERED = "^(?:.*[^0-9A-Za-z])?[0-9]+[-+_.][0-9]+(?:[.][A-Za-z][^/]*)?$"
_UUID = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"


def change_order(row: str = "") -> str:
    """The SQL of a struct that increases with each change. `row` is empty, or an alias and a dot.

    Changes with the same position are ordered by their files, and then by line. Files with numbered
    names are ordered by name, with numbers compared as numbers. Before them come all other files,
    ordered by the time when they landed.
    """
    path, position, line, landed_at = (
        f"{row}{quote(name)}" for name in (_FILE, POSITION, _LINE, _LANDED_AT)
    )
    name = f"substring_index({path}, '/', -1)"
    # Leading zeros give all numbers in a name the same length, so that texts sort like numbers.
    padded = f"regexp_replace({name}, '([0-9]+)', '{'0' * _DIGITS}$1')"
    natural = f"regexp_replace({padded}, '[0-9]+?([0-9]{{{_DIGITS}}})(?![0-9])', '$1')"
    is_numbered = f"{name} RLIKE '{_NUMBERED}' AND NOT {name} RLIKE '{_UUID}'"
    return (
        f"struct({position} AS position, IF({is_numbered}, {natural}, '') AS numbered_name, "
        f"{landed_at} AS landed_at, {natural} AS name, {path} AS path, {line} AS line)"
    )


def by_order(operator: str) -> str:
    """The SQL condition that compares a row of alias `source` with a row of alias `target`.

    With the operator `>`, the row of `source` must be newer.
    """
    return f"{change_order('source.')} {operator} {change_order('target.')}"


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


def _field(*path: str) -> "Column":
    return F.col(".".join([_EVENT_FIELDS, *map(quote, path)]))


def _position(source: "Mapping[str, Column]", changes: Debezium) -> "Column":
    """The position of an event with these fields of its `source`; null if it has none.

    A snapshot row with only a time has no position. Its time is when the row was sent or the
    snapshot began, and may be later than a change that the row does not include: Oracle reads
    an initial snapshot as of an earlier SCN. Source: Debezium's
    AbstractIncrementalSnapshotChangeEventSource, sendEvent;
    RelationalSnapshotChangeEventSource, getSnapshotSourceTimestamp.
    """
    names = field_names(changes.position)
    if names:
        declared = F.struct(*[source[name].alias(name) for name in names])
        # A snapshot row without the other parts sorts before changes that have these parts.
        return F.when(source[names[0]].isNotNull(), declared)
    # MySQL numbers the files of its binlog, in names of any length.
    file_suffix = F.regexp_extract(source["file"], r"(\d+)$", 1)
    file_number = F.nullif(file_suffix, F.lit("")).cast("bigint")
    parts = {"lsn": source["lsn"], "file_number": file_number}
    parts |= {name: source[name] for name in ("pos", "row", "ts_ms")}
    time_of_change = F.when(~_is_of_snapshot(), source["ts_ms"])
    has_position = F.coalesce(source["lsn"], file_number, time_of_change).isNotNull()
    return F.when(has_position, F.struct(*[part.alias(name) for name, part in parts.items()]))


def _is_of_snapshot() -> "Column":
    return F.coalesce(_field("op") == "r", F.lit(False))


def debezium_lines(
    lines: "DataFrame", table: Table, changes: Debezium, added: Sequence[str]
) -> "DataFrame":
    """The lines with their code, position, time and old key.

    Fields of `source` are cast from text, because some connectors quote numbers. The time is when
    the change was committed or, without this time, when Debezium saw it.
    Source: Debezium's reference, connector for Oracle, `source.scn`
    """
    landing = table.landing
    types = {"ts_ms": "BIGINT", **dict(field_types(changes.position or _SOURCE_DDL))}
    source_ddl = ", ".join(f"{quote(name)} STRING" for name in types)
    ddl = (
        f"op STRING, before STRUCT<{landing.schema}>, after STRUCT<{landing.schema}>, "
        f"source STRUCT<{source_ddl}>, ts_ms BIGINT, {quote(UNSENT)} ARRAY<STRING>, "
        f"{CORRUPT} STRING"
    )
    parsed_event = parsed_json(F.when(F.col(REASON).isNull(), F.col(EVENT)), ddl)
    lines = lines.withColumn(_EVENT_FIELDS, evaluated_once(parsed_event))
    code = _field("op")
    source = {name: _field("source", name).cast(type_) for name, type_ in types.items()}
    position = _position(source, changes)
    is_corrupt = F.col(_EVENT_FIELDS).isNull() | _field(CORRUPT).isNotNull()
    reason = F.when((F.col(EVENT) != TOMBSTONE) & is_corrupt, UNFIT)
    has_only_time = position.isNull() & source["ts_ms"].isNotNull()
    reason = reason.when(has_only_time & _is_of_snapshot(), _ONLY_TIMED)
    time_ms = F.coalesce(source["ts_ms"], _field("ts_ms"))
    # An invalid time counts as missing.
    time_ms = F.when(time_ms.between(_FIRST_MS, _LAST_MS), time_ms)
    old_key = [_field("before", key).alias(key) for key in change_keys(table)]
    change = {
        CODE: code,
        POSITION: position,
        CHANGED_AT: F.timestamp_millis(time_ms),
        OLD_KEY: F.struct(*old_key),
        UNSENT: _field(UNSENT),
    }
    values = list["Column"]()
    for name in landing.field_names:
        value = F.when(code == "d", _field("before", name)).otherwise(_field("after", name))
        values.append(value.alias(name))
    parsed = {PARSED: F.struct(*values), REASON: F.coalesce(REASON, reason)}
    lines = lines.withColumns({**change, **parsed})
    return parse_records(_without_required(landing), lines, added, kept=(*change, EVENT))


def _without_required(landing: Landing) -> Landing:
    """The landing without required fields, which a deletion may lack. `_reason` checks them."""
    return replace(landing, required=())


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
    lines = parse_records(_without_required(landing), lines, added)
    is_full_load = F.col(_FILE).rlike(FULL_LOAD)
    kinds = {*map(is_full_load_file, names)}
    if len(kinds) == 1:
        is_full_load = F.lit(kinds.pop())
    parts = {name: F.col(quote(name)) for name in changes.position}
    if not parts:
        # DMS names a file after the time of its changes. The path comes after the name, because the
        # task's setting for folders by date may have changed.
        parts = {
            "file_name": F.substring_index(_FILE, "/", -1),
            "path": F.col(_FILE),
            "line": F.col(_LINE),
        }
    position = F.struct(*[F.when(~is_full_load, part).alias(name) for name, part in parts.items()])
    is_ordered = F.lit(True)
    for name in changes.position:
        is_ordered = is_ordered & _filled(F.col(quote(name))).isNotNull()
    fields = landing.field_names
    old_key = list["Column"]()
    for key in change_keys(table):
        before_image = f"{changes.before_prefix}{key}"
        old_value = F.col(quote(before_image)) if before_image in fields else F.lit(None)
        old_key.append(old_value.alias(key))
    code_of_full_load = F.when(is_full_load, "I")
    commit_time = F.lit(None)
    if changes.committed_at is not None:
        commit_time = F.col(quote(changes.committed_at))
    return lines.withColumns(
        {
            CODE: F.coalesce(_filled(F.col(quote(changes.operation))), code_of_full_load),
            POSITION: F.when(is_full_load | is_ordered, position),
            CHANGED_AT: commit_time.cast("timestamp"),
            OLD_KEY: F.struct(*old_key),
        }
    )


def _filled(value: "Column") -> "Column":
    """The text of a column, or null if it is blank."""
    return F.nullif(F.trim(value.cast("string")), F.lit(""))


_WHY_MOVED = (
    "a value was not sent (__debezium_unavailable_value), and the key changed. Use REPLICA IDENTITY"
    " FULL at the source, and write the row again"
)


@frozen
class ChangeCounts:
    """Counts of a batch's records: `rows` are changes or tombstones, and `bad` records are neither.

    Of the rows, `rescued` have fields without a column, `unsent` lack a value, and `kept` keep an
    older value. An update that changes a key counts as one of `deletes`, too. `within` is a
    condition on the first key column that is true for every change of the batch; empty if unknown.
    """

    rows: int
    bad: int
    rescued: int
    deletes: int
    key_changes: int
    unsent: int
    kept: int
    within: tuple[str, ...] = ()


def change_keys(table: Table) -> tuple[str, ...]:
    """The keys of a table of change data."""
    assert table.merge
    return table.merge.keys


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
    is_deletion = F.when(F.col(CODE).isin(*changes.codes), F.col(CODE) == changes.delete_code)
    old_key = _changed_key(keys, changes.update_code)
    lines = lines.withColumns({DELETED: is_deletion, OLD_KEY: old_key})
    columns = [
        *landing.column_names,
        *ORIGIN,
        POSITION,
        CHANGED_AT,
        *undeclared_names(added),
        DELETED,
        OLD_KEY,
        UNSENT,
        RAW,
        DIGEST,
    ]
    # An array whose entries have a column's name and a `change_order`. No row keeps values yet.
    entry = F.struct(F.lit("").alias("column"), F.expr(change_order()).alias("since"))
    kept = F.when(F.lit(False), F.array(entry)).alias(KEPT)
    reason = F.when(~is_tombstone, _reason(table, keys))
    return lines.select(*map(quote, columns), kept, F.coalesce(REASON, reason).alias(REASON))


def count_changes(lines: "DataFrame", keys: Sequence[str]) -> ChangeCounts:
    """Counts the records of a batch in one pass."""
    is_good = F.col(REASON).isNull()
    has_old_key = F.col(OLD_KEY).isNotNull()
    conditions = {
        "rows": is_good,
        "bad": ~is_good,
        "rescued": is_good & F.col(RESCUED).isNotNull(),
        "deletes": is_good & (F.col(DELETED) | has_old_key),
        "key_changes": is_good & has_old_key,
        "unsent": is_good & F.col(UNSENT).isNotNull(),
        "kept": is_good & F.col(KEPT).isNotNull(),
    }
    key = keys[0]
    key_type = lines.schema[key].dataType.simpleString()
    ends = [F.lit(None), F.lit(None)]
    if key_type in RANGE_TYPES:
        ends = range_ends(F.when(is_good, F.col(quote(key))), key_type)
    [figures] = lines.select(*map(F.count_if, conditions.values()), *ends).collect()
    *counts, least, greatest = figures
    counts_by_name = dict(zip(conditions, counts, strict=True))
    within: tuple[str, ...] = ()
    if not counts_by_name["key_changes"]:  # a changed key affects a key that is not in the batch
        within = range_condition(key, key_type, least, greatest)
    return ChangeCounts(**counts_by_name, within=within)


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
    """Why a line is not a change, or null. It reads the columns that `*_lines` adds."""
    known_codes = ", ".join(table.landing.change_data.codes)
    reason = F.when(F.col(CODE).isNull(), "the operation is missing")
    unknown = F.format_string(f"the operation %s is not one of {known_codes}", CODE)
    reason = reason.when(F.col(DELETED).isNull(), unknown)
    for key in keys:
        reason = reason.when(F.col(quote(key)).isNull(), f"the key {key} is missing")
    is_unsent_and_moved = F.col(UNSENT).isNotNull() & F.col(OLD_KEY).isNotNull()
    reason = reason.when(is_unsent_and_moved, _WHY_MOVED)
    reason = reason.when(F.col(POSITION).isNull(), "the position is missing")
    for name in table.landing.required:
        is_unsent = F.coalesce(F.array_contains(UNSENT, name), F.lit(False))
        is_missing = F.col(quote(name)).isNull() & ~is_unsent
        reason = reason.when(~F.col(DELETED) & is_missing, f"required field {name} is missing")
    return reason


@frozen
class ChangeBatch:
    """A batch of change data. `facts` describe the table before the batch, if there is a table."""

    session: TableSession
    batch: Batch
    facts: TableFacts | None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the table."""
        return change_keys(self.session.table)

    def table_rows(self, within: tuple[str, ...] = ()) -> "DataFrame":
        """The rows of the table before the batch that meet all conditions in `within`.

        In the column `KEPT`, renamed columns have their new names.
        """
        assert self.facts is not None
        rows = table_at(self.session.spark, self.facts.snapshot, within=within)
        renamed = self.session.table.renamed
        if not renamed or KEPT not in rows.columns:
            return rows
        new_names = F.create_map(*[F.lit(name) for pair in renamed.items() for name in pair])

        def with_new_name(entry: "Column") -> "Column":
            name = entry.getField("column")
            return entry.withField("column", F.coalesce(F.try_element_at(new_names, name), name))

        return rows.withColumn(KEPT, F.transform(KEPT, with_new_name))


def described_rows(lines: "DataFrame") -> "DataFrame":
    """The row that each upsert or deletion among the lines describes by itself."""
    rows = lines.where(f"{REASON} IS NULL AND {DELETED} IS NOT NULL")
    return rows.drop(OLD_KEY, RAW, DIGEST, REASON, UNDECLARED)


def batch_changes(load: ChangeBatch, lines: "DataFrame", counts: ChangeCounts) -> "DataFrame":
    """All upserts and deletions of the batch; a key may have several.

    A change of a key also deletes the old key, at the same position.
    """
    rows = described_rows(lines)
    if not counts.key_changes:
        return rows
    moved = lines.where(f"{REASON} IS NULL AND {OLD_KEY} IS NOT NULL")
    values = {key: F.col(f"{OLD_KEY}.{quote(key)}") for key in load.keys}
    values |= {name: F.col(name) for name in (*ORIGIN, POSITION, CHANGED_AT)}
    values[DELETED] = F.lit(True)
    columns = list["Column"]()
    for field in rows.schema.fields:
        value = values.get(field.name, F.lit(None))
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.unionByName(moved.select(*columns))
