"""Declares which program wrote landed change data (AWS DMS or Debezium), and its order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Literal

from lakehouse.base.errors import Refused
from lakehouse.declare.knobs import (
    ANY_TEXT,
    TEXT,
    YES_OR_NO,
    Accepts,
    check_knobs,
    is_number,
    knob,
    one_of,
    or_none,
)
from lakehouse.delta.columns import check_columns, field_names

_WEEK_HOURS = 168.0
_LATENESS = (
    "how many hours a loaded deletion is remembered. During this time, older changes of the deleted"
    " key are ignored"
)
# Limited to ten years, because Spark limits the length of an interval.
_HOURS = Accepts(
    "a number from 0 to 87600 (ten years)", lambda value: is_number(value) and 0 <= value <= 87_600
)
_NAMES = Accepts("a tuple of names", lambda value: isinstance(value, tuple))
_DECIMALS = or_none(one_of("precise", "string"))
_COLUMN_OR_NONE = or_none(Accepts("a column of the schema", TEXT.test))


class ChangeKind(Enum):
    """The effect of a change. Inserts, updates and rows of a snapshot are all upserts."""

    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dms:
    """Files that AWS DMS wrote to S3: a full load (`LOAD….csv`), then ongoing changes.

    The landing's schema must list all columns of the files. Rows of the full load count as older
    than all changes, and may lack the operation column. If `position` is empty, changes are ordered
    by file and line. Source: AWS DMS user guide, "Using Amazon S3 as a target" (operation in the
    first column, names of files, `TimestampColumnName`), and "Creating table mappings" (header
    columns like `$AR_H_CHANGE_SEQ`, before-image columns).
    """

    operations: ClassVar[Mapping[str, ChangeKind]] = {
        "I": ChangeKind.UPSERT,
        "U": ChangeKind.UPSERT,
        "D": ChangeKind.DELETE,
    }
    update_code: ClassVar[str] = "U"
    operation: str = knob("Op", TEXT, "the column with I, U or D; in CSV, the first column")
    position: tuple[str, ...] = knob(
        (), _NAMES, "columns that increase with each change, compared in this order"
    )
    committed_at: str | None = knob(
        None, _COLUMN_OR_NONE, "the column with the commit time, for `_changed_at`"
    )
    before_prefix: str = knob(
        "BI_",
        TEXT,
        "the prefix of before-image columns. The before-images of the key columns reveal updates"
        " that change a key",
    )
    lateness_hours: float = knob(_WEEK_HOURS, _HOURS, _LATENESS)

    def __post_init__(self) -> None:
        check_knobs(self)

    def check_against(self, schema: Sequence[str], file_format: str) -> None:
        """Refuses columns that the schema lacks, and a CSV schema that starts with another column.

        In the CSV files of DMS, the first column is the operation.
        """
        check_columns("Dms.operation", (self.operation,), among=schema)
        check_columns("Dms.position", self.position, among=schema)
        if self.committed_at is not None:
            check_columns("Dms.committed_at", (self.committed_at,), among=schema)
        if file_format == "csv" and schema[0] != self.operation:
            raise Refused(
                f"Landing.schema begins with {schema[0]!r}. Use {self.operation!r} as the first"
                " column, as in the CSV files of DMS."
            )

    def row_fields(self, schema: Sequence[str]) -> tuple[str, ...]:
        """The fields of the schema that become columns of the table."""
        images = {f"{self.before_prefix}{name}" for name in schema}
        return tuple(name for name in schema if name != self.operation and name not in images)


@dataclass(frozen=True, slots=True, kw_only=True)
class Debezium:
    """JSON lines with one Debezium event each, with or without a schema.

    The landing's schema must list the columns of the source table. Changes are ordered by
    `source.lsn` (Postgres), by `source.file`, `pos` and `row` (MySQL), or else by `source.ts_ms`.

    Source: Debezium's reference, "Data change events" of the connectors for PostgreSQL and MySQL
    (op, before, after, source; tombstones), and "New Record State Extraction" (`__op`,
    `__deleted`, `__source_ts_ms`).
    """

    operations: ClassVar[Mapping[str, ChangeKind]] = {
        "c": ChangeKind.UPSERT,
        "r": ChangeKind.UPSERT,
        "u": ChangeKind.UPSERT,
        "d": ChangeKind.DELETE,
        "t": ChangeKind.TRUNCATE,
    }
    update_code: ClassVar[str] = "u"
    unwrapped: bool = knob(
        False,
        YES_OR_NO,
        "True: each line is the changed row, with additional fields `__op` or `__deleted` and"
        " `__source_…`. False: each line is an event with `before` and `after`",
    )
    position: str = knob(
        "",
        ANY_TEXT,
        "fields of `source` with their types, for example `scn BIGINT`. They replace the default"
        " order of changes",
    )
    decimals: Literal["precise", "string"] | None = knob(
        None,
        _DECIMALS,
        "the connector's `decimal.handling.mode`, for lines without a schema. With `precise`,"
        " declare each DECIMAL with the scale that it has in the source",
    )
    lateness_hours: float = knob(_WEEK_HOURS, _HOURS, _LATENESS)

    def __post_init__(self) -> None:
        check_knobs(self)
        if self.position and not field_names(self.position):
            raise Refused(
                f"Debezium.position is {self.position!r}. Use fields of source with their types,"
                " like 'scn BIGINT'."
            )

    def check_against(self, schema: Sequence[str], file_format: str) -> None:
        """Refuses a format other than JSON, and an empty schema."""
        if file_format != "json":
            raise Refused(f"Landing.format is {file_format!r} with changes=Debezium(). Use 'json'.")
        if not schema:
            raise Refused(
                "Landing.schema is empty with changes=Debezium(). Use the columns of the source"
                " table."
            )

    def row_fields(self, schema: Sequence[str]) -> tuple[str, ...]:
        """The fields of the schema that become columns of the table."""
        return tuple(schema)


ChangeSource = Dms | Debezium
