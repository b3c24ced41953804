"""Four weeks of flights through all layers from the terminal; every number in gold against plain pandas."""

import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable

from lakehouse_tests import oracle
from lakehouse_tests.journeys.world import World

START, UNTIL = datetime(2013, 1, 1), datetime(2013, 1, 29)


def main() -> int:
    """Prints seconds per step and the differences; 0 if there are none."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder) / "home", LAKEHOUSE_SPARK_MEMORY="2g")
        for arguments in (["replay", "--until", f"{UNTIL:%Y-%m-%d}"], ["materialize"], ["materialize"]):
            began = time.monotonic()
            done = world.command(*arguments)
            print(f"lakehouse {' '.join(arguments)}: exit {done.returncode}, {time.monotonic() - began:.1f} s", flush=True)
            if done.returncode:
                print(done.stderr)
                return 1
        wrong = [
            f"gold/{name}: {difference}"
            for name, frame in oracle.gold(START, UNTIL).items()
            for difference in oracle.differences(frame, DeltaTable(world.home / "lake" / "gold" / name).to_pandas())
        ]
    print("\n".join(wrong) or "gold equals the oracle in every number")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
