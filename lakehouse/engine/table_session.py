"""What every operation on one table needs, as one value."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakehouse.core.declaration.table import Table
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSession:
    """A table, the lake that holds it, and the Spark session that reads and writes it."""

    lake: Lake
    spark: "SparkSession"
    table: Table

    @property
    def key(self) -> str:
        """The table's key, like `bronze/flight_events`."""
        return self.table.key
