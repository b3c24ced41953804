"""A scan whose process is killed leaves nothing that is taken for an inventory; the next one makes it good."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.clock import now_ms
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.inventory.run import known_inventories, scan
from lakehouse_tests.land.test_kills import PROGRAM, type_of_client
from lakehouse_tests.support.example_lake import rows_of

KEY = "inventory/local"


@pytest.mark.parametrize("step", range(3))
def test_a_killed_scan_is_made_good_by_the_next(
    lake: Lake, spark: SparkSession, new_client: type_of_client, step: int
) -> None:
    for name in ("landing/x", "landing/y"):
        lake.store.put(name, b"1")
    listing = sorted(each.key for each in lake.store.walk(""))
    client = new_client(PROGRAM, lake.settings, "scan_and_die", str(step))
    assert client.wait(timeout=120) == -9
    assert (known_inventories(lake) != []) == (step == 2)
    outcome = scan(lake, now_ms=now_ms())
    rows = rows_of(spark, lake, KEY, "key", "report")
    assert {row[1] for row in rows} == {outcome.inventory.name}
    assert len(rows) == len({row[0] for row in rows}) == outcome.newly_loaded
    assert [row[0] for row in rows if row[0] in listing] == listing
