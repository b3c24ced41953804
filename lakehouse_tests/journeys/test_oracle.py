"""Landing to gold from the terminal: every number equals what plain pandas computes, and doing it again changes no row."""

from datetime import datetime
from pathlib import Path

import pandas
from deltalake import DeltaTable

from lakehouse_tests import oracle
from lakehouse_tests.journeys.world import World

START, UNTIL = datetime(2013, 1, 1), datetime(2013, 1, 4)
TABLES = ("bronze/flight_events", "bronze/weather", "silver/flights", "silver/weather", "gold/carrier_daily", "gold/route_delays")


def read(home: Path, key: str) -> pandas.DataFrame:
    """A table's rows, in an order of their own."""
    frame = DeltaTable(home / "lake" / key).to_pandas()
    return frame.sort_values(list(frame.columns), ignore_index=True)


def test_gold_equals_the_oracle_and_a_second_run_changes_no_row(tmp_path: Path) -> None:
    world = World(tmp_path / "home", LAKEHOUSE_SPARK_MEMORY="1g")
    for arguments in (["replay", "--until", f"{UNTIL:%Y-%m-%d}"], ["materialize"]):
        done = world.command(*arguments)
        assert done.returncode == 0, done.stderr
    expected = oracle.gold(START, UNTIL)
    for name, frame in expected.items():
        assert oracle.differences(frame, read(world.home, f"gold/{name}")) == []
    before = {key: read(world.home, key) for key in TABLES}
    again = world.command("materialize")
    assert again.returncode == 0, again.stderr
    for key, frame in before.items():
        pandas.testing.assert_frame_equal(frame, read(world.home, key))
    assert world.processes() == []
