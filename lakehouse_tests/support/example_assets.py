"""A small lake for the tests of what Dagster shows: three tables in a row, in a folder, with no data yet."""

from pathlib import Path
from typing import Any

from lakehouse import Append, Compaction, Landing, Merge, Overwrite, Table, table
from lakehouse.base.errors import Transient
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.lake.lake import Lake
from lakehouse.store import StoredFile
from lakehouse_tests.memory_store import MemoryStore

orders = Table(
    key="bronze/orders",
    source=Landing(
        prefix="landing/orders/", format="json", schema="id STRING, amount BIGINT", required=("id",)
    ),
    write=Append(),
    compaction=Compaction(min_small_files=4),
    fresh_within_hours=2,
    description="Orders as they land.",
)


@table(
    key="silver/orders",
    inputs=[orders],
    write=Merge(keys=("id",), order_by=("amount",)),
    compaction=Compaction(min_small_files=2),
)
def latest_orders(orders: Any) -> Any:
    """One row per order."""
    return orders.select("id", "amount")


@table(
    key="gold/totals",
    inputs=[latest_orders],
    write=Overwrite(),
    compaction=Compaction(min_small_files=2),
)
def totals(orders: Any) -> Any:
    """One row for all."""
    return orders.groupBy().count()


TABLES = (orders, latest_orders, totals)


def example_settings(home: Path, **values: str) -> Settings:
    """Settings of a lake in `home` that nobody serves."""
    return parse_settings(
        {
            "LAKEHOUSE_HOME": str(home),
            "LAKEHOUSE_SPARK_PORT": "1",
            "LAKEHOUSE_REPLAY": "off",
            **values,
        },
        base=home,
    )


def example_lake(home: Path, store: MemoryStore | None = None, **values: str) -> Lake:
    """A lake whose files are in memory."""
    return Lake(settings=example_settings(home, **values), store=store or MemoryStore())


class AwayStore(MemoryStore):
    """A store that does not answer."""

    def list(self, prefix: str) -> list[StoredFile]:
        raise Transient(f"{prefix} cannot be listed now")

    def folders(self, prefix: str) -> Any:
        raise Transient(f"{prefix} cannot be listed now")
