"""The lines of a batch as upserts and deletions of keys."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

from lakehouse.core.declaration.change_sources import Dms, Operation
from lakehouse.core.declaration.table import Table
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.changes.columns import (
    CHANGED_AT,
    DELETED,
    OLD_KEY,
    OPERATION,
    POSITION,
)
from lakehouse.engine.ingest.changes.read import ChangeCounts, change_keys
from lakehouse.engine.ingest.parse_lines import DIGEST, OWN, RAW, REASON, UNDECLARED
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TRUNCATED = "_truncated"


def own_rows(lines: "DataFrame") -> "DataFrame":
    """Each upsert or deletion among the lines as the row that it would be by itself."""
    marked = lines.withColumns(
        {DELETED: F.col(OPERATION) == Operation.DELETE.value, TRUNCATED: F.lit(False)}
    )
    return marked.drop(OPERATION, OLD_KEY, RAW, DIGEST, REASON, UNDECLARED)


def batch_changes(
    spark: "SparkSession",
    lines: "DataFrame",
    table: Table,
    counts: ChangeCounts,
    older: "DataFrame | None",
    facts: TableFacts | None,
) -> "DataFrame":
    """Upserts and deletions, one or more a key. A changed key deletes the old one; a truncation deletes every key in batch and table."""
    keys, good = change_keys(table), lines.where(f"{REASON} IS NULL")
    rows = own_rows(
        good.where(F.col(OPERATION).isin(Operation.UPSERT.value, Operation.DELETE.value))
    )
    if counts.key_changes:
        old = {key: F.col(f"{OLD_KEY}.{quote(key)}") for key in keys}
        rows = rows.unionByName(
            _deletions(good.where(f"{OLD_KEY} IS NOT NULL"), rows, old, truncated=False)
        )
    told = [truncations(good)] if counts.truncates else []
    known = (
        []
        if older is None or isinstance(table.landing.changes, Dms)
        else [older.where(TRUNCATED).select(*OWN, POSITION, CHANGED_AT)]
    )
    names = [*map(quote, keys)]
    hit = [rows.select(*names).distinct().crossJoin(marks) for marks in (*told, *known)]
    if told and facts is not None:
        hit.append(table_at(spark, facts.snapshot).select(*names).distinct().crossJoin(told[0]))
    cut = [
        _deletions(each, rows, {key: F.col(quote(key)) for key in keys}, truncated=True)
        for each in hit
    ]
    return reduce(lambda one, other: one.unionByName(other), [rows, *cut])


def truncations(good: "DataFrame") -> "DataFrame":
    """The places and positions of the truncations among the lines."""
    return good.where(F.col(OPERATION) == Operation.TRUNCATE.value).select(
        *OWN, POSITION, CHANGED_AT
    )


def _deletions(
    found: "DataFrame", rows: "DataFrame", keys: Mapping[str, "Column"], *, truncated: bool
) -> "DataFrame":
    """Deletions of keys at the places and positions of `found`, with the columns of `rows`, null where a key says nothing."""
    known = {
        **keys,
        **{name: F.col(name) for name in (*OWN, POSITION, CHANGED_AT)},
        DELETED: F.lit(True),
        TRUNCATED: F.lit(truncated),
    }
    return found.select(
        *[
            known.get(each.name, F.lit(None)).cast(each.dataType).alias(each.name)
            for each in rows.schema.fields
        ]
    )
