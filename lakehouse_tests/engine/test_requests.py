"""What operations without Spark ask of S3, held at their numbers; `python -m benchmarks.requests` counts those with Spark, too."""

from pathlib import Path

from lakehouse.cli.context import LakeContext
from lakehouse.cli.fleet_from_logs import look_at_fleet
from lakehouse.engine.declared_tables import declared_tables
from lakehouse.engine.lake import open_lake
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder


def test_a_plan_lists_the_log_of_each_table_once_and_asks_the_journal_of_those_that_are_there(bucket: str, tmp_path: Path) -> None:
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake", LAKEHOUSE_TABLES="lakehouse_tests.cli.example")
    LogBuilder(open_lake(settings).store, "bronze/orders").create().append([("a", 1)]).append([("b", 1)])
    opened = LakeContext(lake=open_lake(settings), tables=declared_tables(settings))
    look_at_fleet(opened, [*opened.tables.values()])
    # Three logs, and of the table that is there its tries and its probes; three commits, and its pause.
    assert opened.lake.store.requests == {"ListObjectsV2": 3 + 2, "GetObject": 3 + 1}
