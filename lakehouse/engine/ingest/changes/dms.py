"""Parses lines from AWS DMS as changes.

The letters of operations and the columns that DMS adds are in `core/declaration/change_sources.py`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.declaration.change_sources import Dms
from lakehouse.core.declaration.column_names import field_names
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.engine.ingest.changes.columns import (
    CHANGED_AT,
    CODE,
    HAS_COMMIT_TIME,
    HAS_POSITION,
    OLD_KEY,
    POSITION,
)
from lakehouse.engine.ingest.parse_lines import ORIGIN, parse_records
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote

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
