"""Converts a batch's lines to upserts and deletions of keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from lakehouse.cdc.columns import CHANGED_AT, DELETED, KEPT, OLD_KEY, OPERATION, POSITION, TRUNCATED
from lakehouse.cdc.read import ChangeCounts, change_keys
from lakehouse.declare.change_sources import ChangeKind, Dms
from lakehouse.delta.log import TableFacts
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import DIGEST, ORIGIN, RAW, REASON, UNDECLARED
from lakehouse.land.plan.batches import Batch
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import table_at
from lakehouse.spark.statements import quote
from lakehouse.write.commit_rows import between

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
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


def key_range(keys: tuple[str, ...], counts: ChangeCounts) -> tuple[str, ...]:
    """A condition on the first key that is true for every change of the batch; empty if unknown."""
    if counts.first_key is None:
        return ()
    return (between(keys[0], *counts.first_key),)


def described_rows(lines: "DataFrame") -> "DataFrame":
    """The row that each upsert or deletion among the lines describes by itself."""
    is_row = F.col(OPERATION).isin(ChangeKind.UPSERT.value, ChangeKind.DELETE.value)
    marked = lines.where(F.col(REASON).isNull() & is_row).withColumns(
        {DELETED: F.col(OPERATION) == ChangeKind.DELETE.value, TRUNCATED: F.lit(False)}
    )
    return marked.drop(OPERATION, OLD_KEY, RAW, DIGEST, REASON, UNDECLARED)


def batch_changes(
    load: ChangeBatch, lines: "DataFrame", counts: ChangeCounts, remembered: "DataFrame | None"
) -> "DataFrame":
    """All upserts and deletions of the batch; a key may have several.

    A change of a key also deletes the old key. A truncation, in the batch or among the `remembered`
    deletions, deletes every key of the batch. If it is in the batch, it also deletes every key of
    the table. Such deletions have the position of their cause, so newer changes are not affected.
    """
    rows = described_rows(lines)
    if counts.key_changes:
        old_key = {key: F.col(f"{OLD_KEY}.{quote(key)}") for key in load.keys}
        moved = lines.where(f"{REASON} IS NULL AND {OLD_KEY} IS NOT NULL")
        rows = rows.unionByName(_deletions(moved, rows, old_key, truncated=False))

    key_columns = [*map(quote, load.keys)]
    keys_of_batch = rows.select(*key_columns).distinct()
    truncated: list[DataFrame] = []
    if counts.truncates:
        own_truncations = truncations(lines)
        truncated.append(keys_of_batch.crossJoin(own_truncations))
        if load.facts is not None:
            keys_of_table = load.table_rows().select(*key_columns)
            truncated.append(keys_of_table.crossJoin(own_truncations))
    # DMS sends no truncations.
    if remembered is not None and not isinstance(load.session.table.landing.changes, Dms):
        older_truncations = remembered.where(TRUNCATED).select(*ORIGIN, POSITION, CHANGED_AT)
        truncated.append(keys_of_batch.crossJoin(older_truncations))
    same_key = {key: F.col(quote(key)) for key in load.keys}
    deletions = [_deletions(each, rows, same_key, truncated=True) for each in truncated]
    return reduce(lambda one, other: one.unionByName(other), [rows, *deletions])


def truncations(lines: "DataFrame") -> "DataFrame":
    """The origins (file and line), positions and times of the truncations among the lines."""
    is_truncation = F.col(OPERATION) == ChangeKind.TRUNCATE.value
    good = lines.where(F.col(REASON).isNull() & is_truncation)
    return good.select(*ORIGIN, POSITION, CHANGED_AT)


def _deletions(
    origins: "DataFrame", rows: "DataFrame", keys: Mapping[str, "Column"], *, truncated: bool
) -> "DataFrame":
    """One deletion of `keys` per row of `origins`, with its origin, position and time.

    The result has the columns of `rows`; all other values are null.
    """
    values = {
        **keys,
        **{name: F.col(name) for name in (*ORIGIN, POSITION, CHANGED_AT)},
        DELETED: F.lit(True),
        TRUNCATED: F.lit(truncated),
    }
    columns = list["Column"]()
    for field in rows.schema.fields:
        value = values.get(field.name, F.lit(None))
        columns.append(value.cast(field.dataType).alias(field.name))
    return origins.select(*columns)
