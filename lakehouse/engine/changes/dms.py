"""Lines of AWS DMS as changes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.changes.sources import Dms
from lakehouse.core.declaration.column_names import field_names
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.changes.columns import CHANGED_AT, CODE, IS_PLACED, IS_TIMED, OLD_KEY, OPERATION, POSITION, changed_key, operation_of
from lakehouse.engine.ingest.parse_lines import OWN, parse_records, staged_lines
from lakehouse.engine.ingest.staging import StagedRecords
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Source: AWS DMS user guide, "Using Amazon S3 as a target": files of a full load have a hexadecimal number, others a time
FULL_LOAD = r"(^|/)LOAD[0-9A-Fa-f]*\.[^/]*$"


def dms_lines(
    spark: "SparkSession", landing: Landing, changes: Dms, keys: Sequence[str], staged: StagedRecords, added: Sequence[AddedColumn]
) -> "DataFrame":
    """The lines with their operation, position and time. A row of a full load has a position without parts, which is below every other."""
    lines = parse_records(replace(landing, required=()), staged_lines(spark, staged), added, ())
    is_full_load = F.col(OWN[0]).rlike(FULL_LOAD)
    code = F.coalesce(_filled(changes.operation), F.when(is_full_load, F.lit("I")))
    parts = {name: F.col(quote(name)) for name in changes.position}
    if not parts:
        # DMS names a file by the time of its changes; the folders above it are by date, or not, as the task was set at the time.
        parts = {"file_name": F.substring_index(OWN[0], "/", -1), "path": F.col(OWN[0]), "line": F.col(OWN[1])}
    position = F.struct(*[F.when(~is_full_load, part).alias(name) for name, part in parts.items()])
    is_ordered = F.lit(True)
    for name in changes.position:
        is_ordered = is_ordered & _filled(name).isNotNull()
    before = {key: f"{changes.before_prefix}{key}" for key in keys}
    old_key: Column = F.lit(None).cast("string")
    if set(before.values()) <= set(field_names(landing.schema)):
        known = F.struct(*[F.col(quote(name)).alias(key) for key, name in before.items()])
        old_key = changed_key(known, keys, code == "U")
    told = F.lit(None).cast("string") if changes.committed_at is None else _filled(changes.committed_at)
    committed = F.lit(None).cast("timestamp") if changes.committed_at is None else F.col(quote(changes.committed_at)).cast("timestamp")
    return lines.withColumns(
        {
            CODE: code,
            OPERATION: operation_of(changes, code),
            POSITION: position,
            IS_PLACED: is_full_load | is_ordered,
            IS_TIMED: committed.isNotNull() | (is_full_load & told.isNull()),
            CHANGED_AT: committed,
            OLD_KEY: old_key,
        }
    )


def _filled(name: str) -> "Column":
    """The text of a column, null where it is blank."""
    return F.nullif(F.trim(F.col(quote(name)).cast("string")), F.lit(""))
