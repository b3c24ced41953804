"""Rows of a full load of AWS DMS that come so late that nobody knows whether their key was deleted.

A row of a full load is older than every change, so that any deletion of its key stands against it. Where deletions are rows, or all are
remembered, they do. Once some were forgotten, a row whose key is neither in the table nor remembered is none: its key may be among them.
"""

import re
from typing import TYPE_CHECKING

from lakehouse.core.changes.change import Operation
from lakehouse.core.changes.sources import Dms
from lakehouse.core.declaration.table import Merge, Table
from lakehouse.core.ingest.batches import Batch
from lakehouse.engine.changes.columns import OPERATION
from lakehouse.engine.changes.deleted_keys import has_forgotten, remembered
from lakehouse.engine.changes.dms import FULL_LOAD
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.parse_lines import OWN, REASON
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KNOWN = "_lakehouse_known"
_WHY = (
    "a row of a full load that came after deletions were forgotten (Dms.lateness_hours), and its key may be one of theirs; accepted: if "
    "the source still has the row, to land it as a change, in a file whose name does not begin with LOAD"
)


def refuse_late_full_load(
    lake: Lake, spark: "SparkSession", table: Table, batch: Batch, lines: "DataFrame", facts: TableFacts | None
) -> "DataFrame":
    """The lines of a batch, with a reason for each that may bring back a deleted key; `facts` is the table before the batch."""
    from pyspark.sql import functions as F  # noqa: N812

    assert table.source is not None
    write = table.write
    if facts is None or not isinstance(table.source.changes, Dms) or not isinstance(write, Merge) or write.deletes != "hard":
        return lines
    if not any(re.search(FULL_LOAD, file.name) for file in batch.files):
        return lines
    deletions = remembered(lake, spark, table.key, before=batch.number)
    if deletions is None or not has_forgotten(deletions):
        return lines
    keys = [*map(quote, write.keys)]
    known = table_at(spark, facts.snapshot).select(*keys).unionByName(deletions.select(*keys)).distinct().withColumn(_KNOWN, F.lit(True))
    is_late = F.col(OWN[0]).rlike(FULL_LOAD) & (F.col(OPERATION) == Operation.UPSERT.value) & F.col(_KNOWN).isNull()
    why = F.coalesce(REASON, F.when(is_late, _WHY))
    return lines.join(known, [*write.keys], "left").withColumn(REASON, why).select(*map(quote, lines.columns))
