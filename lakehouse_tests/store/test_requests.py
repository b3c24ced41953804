"""What operations without Spark ask of S3, held at their numbers; `python -m benchmarks.requests` counts those with Spark, too."""

from pathlib import Path

from lakehouse import Append, Landing, Table
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import open_lake, undeclared_tables
from lakehouse.watch.due import plan_operations
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder

SOURCE = Landing(prefix="landing/orders/", format="json", schema="id STRING")


def test_a_plan_lists_the_log_of_each_table_once_and_looks_for_the_state_of_the_lake(
    bucket: str, tmp_path: Path
) -> None:
    declared = {"LAKEHOUSE_TABLES": "lakehouse_tests.support.example_terminal"}
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake", **declared)
    story = LogBuilder(open_lake(settings).store, "bronze/orders").create()
    story.append([("a", 1)]).append([("b", 1)])
    lake, tables = open_lake(settings), declared_tables(settings)
    plan_operations(lake, tables, [*tables.values()])
    # Three logs and landed batches, and three commits. There is neither a table of operations
    # (failures, vacuums and speeds) nor one of records (pauses, and cold and unreadable files).
    assert lake.store.requests == {"ListObjectsV2": 3 + 1, "GetObject": 3, "HeadObject": 5}


def test_undeclared_tables_cost_a_listing_per_layer_and_a_look(bucket: str, tmp_path: Path) -> None:
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))
    for key in ("bronze/orders", "gold/sums"):
        LogBuilder(lake.store, key).create().append([("a", 1)]).store_data()
    lake.store.requests.clear()
    orders = Table(key="bronze/orders", source=SOURCE, write=Append())
    assert undeclared_tables(lake, [orders]) == ("gold/sums",)
    assert lake.store.requests == {"ListObjectsV2": 3, "HeadObject": 1}
