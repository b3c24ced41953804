"""Four weeks of flights through all layers from the terminal; every number in gold against plain pandas."""

import sys
import tempfile
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.figures import Figure, alone, timed
from lakehouse_tests import oracle
from lakehouse_tests.journeys.world import World

START = datetime(2013, 1, 1)


def main(days: int = 28) -> list[Figure]:
    """The seconds of each step and the differences from the oracle."""
    figures, until = list[Figure](), START + timedelta(days=days)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "home", LAKEHOUSE_SPARK_MEMORY="2g")
        for arguments in (
            ["replay", "--until", f"{until:%Y-%m-%d}"],
            ["materialize"],
            ["materialize"],
        ):
            (seconds, done), place = timed(partial(world.command, *arguments)), len(figures)
            print(
                f"  lakehouse {' '.join(arguments)}: exit {done.returncode}, {seconds:.1f} s",
                flush=True,
            )
            if done.returncode:
                raise SystemExit(done.stderr)
            again = " a second time" if place == 2 else ""
            figures.append(
                Figure(
                    name=f"lakehouse {arguments[0]}{again}, {days} days of flights",
                    value=seconds,
                    unit="s",
                )
            )
        wrong = [
            f"gold/{name}: {difference}"
            for name, frame in oracle.gold(START, until).items()
            for difference in oracle.differences(
                frame, DeltaTable(world.home / "lake" / "gold" / name).to_pandas()
            )
        ]
    print("\n".join(wrong) or "  gold equals the oracle in every number")
    return [
        *figures,
        Figure(
            name="numbers in gold that differ from pandas",
            value=len(wrong),
            at_most=0,
            holds_at_any_size=True,
        ),
    ]


if __name__ == "__main__":
    sys.exit(alone(main))
