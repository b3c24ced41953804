"""Rows of change data that come so late that nobody knows whether their key was deleted.

A row of a full load of AWS DMS is older than every change. In a file that is loaded long after it landed, since it was set aside or the
loads stood still, a row may be older than deletions that are forgotten by then. Any deletion of the key stands against such rows where
deletions are rows, or all are remembered. Once some were forgotten, a row whose key is neither in the table nor remembered is none: its key
may be among them. A row whose position is above theirs is loaded.
"""

import re
from typing import TYPE_CHECKING

from lakehouse.core.changes.sources import Dms, Operation
from lakehouse.core.declaration.table import Merge, Table
from lakehouse.core.ingest.batches import Batch
from lakehouse.core.units import HOUR_MS
from lakehouse.engine.changes.columns import OPERATION, POSITION
from lakehouse.engine.changes.deleted_keys import UNTIL_POSITION, UNTIL_TIME, forgotten, remembered
from lakehouse.engine.changes.dms import FULL_LOAD
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.parse_lines import OWN, REASON
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KNOWN = "_lakehouse_known"
_WHY_FULL_LOAD = (
    "a row of a full load that came after deletions were forgotten (Dms.lateness_hours), and its key may be one of theirs; accepted: if "
    "the source still has the row, to land it as a change, in a file whose name does not begin with LOAD"
)
_WHY_WAITED = (
    "a row of a file that landed before deletions that are forgotten by now (lateness_hours), and its key may be one of theirs; accepted: "
    "if the source still has the row, to land it once more"
)


def refuse_late(lake: Lake, spark: "SparkSession", table: Table, batch: Batch, lines: "DataFrame", facts: TableFacts | None) -> "DataFrame":
    """The lines of a batch, with a reason for each that may bring back a deleted key; `facts` is the table before the batch."""
    changes, write = table.landing.change_data, table.write
    if facts is None or not isinstance(write, Merge) or write.deletes != "hard":
        return lines
    is_full_load = isinstance(changes, Dms) and any(re.search(FULL_LOAD, file.name) for file in batch.files)
    # Deletions that are forgotten are older than that, so a file that is loaded in time asks nobody.
    late_ms = now_ms() - changes.lateness_hours * HOUR_MS
    if not is_full_load and all(file.modified_ms > late_ms for file in batch.files):
        return lines
    deletions = remembered(lake, spark, table.key, batch)
    if deletions is None or (until := forgotten(deletions)) is None:
        return lines
    keys = [*map(quote, write.keys)]
    known = table_at(spark, facts.snapshot).select(*keys).unionByName(deletions.select(*keys)).distinct().withColumn(_KNOWN, F.lit(True))
    is_unknown = (F.col(OPERATION) == Operation.UPSERT.value) & F.col(_KNOWN).isNull()
    of_full_load = F.lit(is_full_load) & F.col(OWN[0]).rlike(FULL_LOAD)
    has_waited = (F.col(OWN[2]) <= F.col(UNTIL_TIME)) & (F.col(POSITION) <= F.col(UNTIL_POSITION))
    why = F.when(is_unknown & of_full_load, _WHY_FULL_LOAD).when(is_unknown & has_waited, _WHY_WAITED)
    told = lines.join(known, [*write.keys], "left").crossJoin(until).withColumn(REASON, F.coalesce(REASON, why))
    return told.select(*map(quote, lines.columns))
