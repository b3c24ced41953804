"""Parses Debezium events as changes: objects with `before` and `after`, or unwrapped rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.cdc.columns import (
    CHANGED_AT,
    CODE,
    HAS_COMMIT_TIME,
    HAS_POSITION,
    OLD_KEY,
    POSITION,
    UNSENT,
)
from lakehouse.cdc.plan.event import TOMBSTONE
from lakehouse.cdc.plan.event import UNSENT as UNSENT_MEMBER
from lakehouse.declare.change_sources import Debezium
from lakehouse.declare.landing import Landing
from lakehouse.delta.column_names import field_names, field_types
from lakehouse.land.parse_lines import (
    CORRUPT,
    DIGEST,
    EVENT,
    ORIGIN,
    RAW,
    REASON,
    parsed_json,
    why_other_years,
)
from lakehouse.land.plan.records import UNFIT
from lakehouse.land.plan.undeclared import AddedColumn
from lakehouse.land.undeclared_columns import (
    undeclared_columns,
    why_undeclared_unfit,
    with_undeclared,
)
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
    """The event of a line, parsed into the column `root`."""

    changes: Debezium
    root: str = "_parsed"

    def field(self, path: str) -> "Column":
        """A field of the event."""
        return F.col(f"{self.root}.{path}")

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

    def reason(self, landing: Landing, added: Sequence[AddedColumn]) -> "Column":
        """Why a line is not a valid event, or null. `read._reason` checks the rest."""
        is_event = F.col(EVENT) != TOMBSTONE
        is_corrupt = F.col(self.root).isNull() | F.col(f"{self.root}.{CORRUPT}").isNotNull()
        reason = F.when(F.col(REASON).isNotNull(), F.col(REASON))
        reason = reason.when(is_event & is_corrupt, UNFIT)
        reason = why_other_years(reason, landing, self.value)
        reason = why_undeclared_unfit(reason, landing, added)
        _, has_position = self.position()
        has_only_time = ~has_position & self.source("ts_ms").isNotNull()
        return reason.when(has_only_time & ~self.is_change(), _ONLY_TIMED)


def debezium_lines(
    lines: "DataFrame",
    landing: Landing,
    changes: Debezium,
    keys: Sequence[str],
    added: Sequence[AddedColumn],
) -> "DataFrame":
    """The lines with their code, position, time and old key."""
    fields = field_names(landing.schema)
    event_ddl = _event_ddl(landing.schema, changes)
    ddl = f"{event_ddl}, {quote(UNSENT_MEMBER)} ARRAY<STRING>, {CORRUPT} STRING"
    event = _Event(changes=changes)
    parsed_event = parsed_json(F.when(F.col(REASON).isNull(), F.col(EVENT)), ddl)
    position, has_position = event.position()
    old_key = list["Column"]()
    for key in keys:
        old_value = F.lit(None) if changes.unwrapped else event.field(f"before.{quote(key)}")
        old_key.append(old_value.alias(key))
    parsed = with_undeclared(lines, added).withColumn(event.root, evaluated_once(parsed_event))
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
        event.committed_ms().isNotNull().alias(HAS_COMMIT_TIME),
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
