"""Landing to gold from the terminal, with kills in between: every number equals what plain pandas computes; again, and no row changes."""

from datetime import datetime
from pathlib import Path

import pandas
from deltalake import DeltaTable

from lakehouse_tests import oracle
from lakehouse_tests.conftest import link_year
from lakehouse_tests.journeys.world import World

START, UNTIL = datetime(2013, 1, 1), datetime(2013, 1, 4)
# What is killed with SIGKILL, and by which file it is known that it is in the middle of it.
KILLED = (
    ("replay", "landing/flight_events/2013-01-02*"),
    ("materialize", "silver/flights/*.parquet"),
)
TABLES = ("bronze/flight_events", "bronze/weather", "silver/flights", "silver/weather", "gold/carrier_daily", "gold/route_delays")


def read(home: Path, key: str) -> pandas.DataFrame:
    """A table's rows, in an order of their own."""
    frame = DeltaTable(home / "lake" / key).to_pandas()
    return frame.sort_values(list(frame.columns), ignore_index=True)


def test_after_kills_gold_equals_the_oracle_and_a_second_run_changes_no_row(prepared_home: Path, tmp_path: Path) -> None:
    """All of it beside one server."""
    world = World(link_year(prepared_home, tmp_path / "home"), LAKEHOUSE_SPARK_MEMORY="1g")
    arguments = {"replay": ["replay", "--until", f"{UNTIL:%Y-%m-%d}"], "materialize": ["materialize"]}
    world.ask("server", "start")
    for name, pattern in KILLED:
        world.kill(*arguments[name], when=lambda pattern=pattern: any((world.home / "lake").glob(pattern)))
    for name in ("replay", "materialize"):
        world.ask(*arguments[name])
    expected = oracle.gold(START, UNTIL)
    for name, frame in expected.items():
        assert oracle.differences(frame, read(world.home, f"gold/{name}")) == []
    before = {key: read(world.home, key) for key in TABLES}
    world.ask("materialize")
    for key, frame in before.items():
        pandas.testing.assert_frame_equal(frame, read(world.home, key))
    world.ask("server", "stop")
    assert world.processes() == []
