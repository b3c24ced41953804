"""Three declared tables for the tests of the terminal: one from files, one merged, one that nothing was ever written to."""

from typing import Any

from lakehouse import (
    SHORT_RETENTION_RISK,
    Append,
    Compaction,
    Landing,
    Merge,
    Overwrite,
    Prices,
    Table,
    Vacuum,
    table,
)

orders = Table(
    key="bronze/orders",
    source=Landing(
        prefix="landing/orders/",
        format="json",
        schema="id STRING, amount BIGINT, d STRING",
        required=("id",),
    ),
    write=Append(partition_by=("d",)),
    compaction=Compaction(min_small_files=4, target_file_bytes=4096),
    prices=Prices(usd_per_vcpu_hour=1.1),
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
    vacuum=Vacuum(accepts_short_retention=SHORT_RETENTION_RISK),
    properties={"delta.deletedFileRetentionDuration": "interval 1 millisecond"},
)
def totals(orders: Any) -> Any:
    """One row for all."""
    return orders.groupBy().count()
