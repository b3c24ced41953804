"""Two assets that deltalake writes, and their upkeep in the last lines, without Spark code."""

from pathlib import Path

import dagster as dg
import pyarrow as pa
from deltalake import write_deltalake

from lakehouse import Compaction, maintain, maintained_metadata

WAREHOUSE = Path.cwd() / "warehouse"


# The asset and the upkeep of its table share a pool of one slot (dagster.yaml), so that neither
# loses a race against the other.
@dg.asset(
    key=["sales", "orders"], metadata={"dagster/uri": str(WAREHOUSE / "orders")}, pool="orders"
)
def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Orders of a minute, appended: one more small file. Its page shows the table's health."""
    day = f"2026-01-{1 + hash(context.run.run_id) % 2:02}"
    rows = pa.table({"order": [context.run.run_id], "day": [day], "amount": [42.0]})
    write_deltalake(WAREHOUSE / "orders", rows, mode="append", partition_by=["day"])
    return dg.MaterializeResult(metadata=maintained_metadata(context.asset_key))


@dg.asset(
    key=["sales", "customers"], metadata={"uri": str(WAREHOUSE / "customers")}, pool="customers"
)
def customers() -> None:
    """All customers, written anew."""
    write_deltalake(
        WAREHOUSE / "customers", pa.table({"customer": ["ada", "grace"]}), mode="overwrite"
    )


minutely = dg.ScheduleDefinition(
    name="minutely",
    target=[orders, customers],
    cron_schedule="* * * * *",
    default_status=dg.DefaultScheduleStatus.RUNNING,
)

defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[orders, customers], schedules=[minutely], executor=dg.in_process_executor
    ),
    maintain([orders, customers], compaction=Compaction(min_small_files=4)),
)
