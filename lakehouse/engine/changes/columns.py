"""The columns of change data, in the tables and on the way there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakehouse.core.changes.sources import type_of_changes
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column

# Columns of the tables that change data is written to.
POSITION, CHANGED_AT, DELETED = "_position", "_changed_at", "_deleted"
# Columns of the lines alone.
OPERATION, OLD_KEY = "_lakehouse_operation", "_lakehouse_old_key"
CODE, IS_PLACED, IS_TIMED = "_lakehouse_code", "_lakehouse_is_placed", "_lakehouse_is_timed"
# A line without an event, which follows a deletion so that Kafka can forget the key. Source: Debezium's reference, "Tombstone events"
TOMBSTONE = "tombstone"


def changed_key(before: "Column", keys: Sequence[str], is_update: "Column", after: "Sequence[Column] | None" = None) -> "Column":
    """The key before an update that changed it, or null; a part that is not known is no change."""
    now = after or [F.col(quote(key)) for key in keys]
    is_known, is_same = F.lit(True), F.lit(True)
    for key, part in zip(keys, now, strict=True):
        is_known = is_known & before.getField(key).isNotNull()
        is_same = is_same & before.getField(key).eqNullSafe(part)
    return F.when(is_update & is_known & ~is_same, before)


def operation_of(changes: type_of_changes, code: "Column") -> "Column":
    """The operation that a code stands for, or null."""
    found = F.lit(None).cast("string")
    for each, operation in changes.operations.items():
        found = F.when(code == each, F.lit(operation.value)).otherwise(found)
    return found
