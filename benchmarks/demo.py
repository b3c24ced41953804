"""Measures the demo in a new home: seconds to the first gold table and to a commit, and its memory.

`python -m benchmarks.demo [COMPACTIONS]` waits for so many compactions by the sensor. Memory is the
proportional set size of all processes, every second; at rest, the median while no run executed.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from benchmarks.figures import Figure, alone, middle, repeated
from benchmarks.request_to_commit import steps_of
from lakehouse_tests.journeys.world import World, wait_for

GOLD = ("gold/carrier_daily", "gold/route_delays")
MOST_PEAK_GB = 4.0  # a laptop of 8 GB: half for the system and a browser
_MEMORY = "2g"


# The measured parts of a compaction -> the name of each, and the most seconds it may take.
_STEPS = {
    "over_optimize": ("from the sensor's request to the commit, over the bare OPTIMIZE", 3.0),
    "to_start": ("of it, from the request to the run's start", None),
    "start_to_step": ("from the run's start to its step", None),
    "step_to_commit": ("from the step to the commit, with the OPTIMIZE", None),
}


def main(compactions: int = 4) -> list[Figure]:
    """The seconds that a person waits, and the memory of all processes."""
    with tempfile.TemporaryDirectory() as folder:
        home, began, waited = Path(folder) / "home", time.monotonic(), dict[str, float]()
        with World(home, LAKEHOUSE_SPARK_MEMORY=_MEMORY) as world, _memory_of(world) as looks:
            waited["the page"] = world.answered - began
            wait_for("a gold table is there and its checks are green", lambda: is_gold_green(world))
            waited["the first gold table with green checks"] = time.monotonic() - began
            if compactions:
                wait_for("a compaction by the sensor", lambda: steps_of(world.page, home))
                waited["the first compaction by the sensor"] = time.monotonic() - began
                wait_for(
                    f"{compactions} compactions by the sensor",
                    lambda: len(steps_of(world.page, home)) >= compactions,
                )
            steps, busy = steps_of(world.page, home), _busy_times(world)
        began = time.monotonic()
        with World(home, LAKEHOUSE_SPARK_MEMORY=_MEMORY) as world:
            again = world.answered - began
    peak = max(size for _, size in looks)
    resting = [size for at, size in looks if not any(start <= at <= end for start, end in busy)]
    medians = [
        middle(name, [row[step] for row in steps], unit="s", row="P4", at_most=most)
        for step, (name, most) in _STEPS.items()
        if steps
    ]
    return [
        *medians,
        *(
            Figure(name=f"from the start to {what}, new home", value=seconds, unit="s", row="P11")
            for what, seconds in waited.items()
        ),
        Figure(
            name="from the start to the page, the same home again", value=again, unit="s", row="P11"
        ),
        Figure(
            name="memory of all processes at peak",
            value=peak,
            unit="GB",
            row="P12",
            at_most=MOST_PEAK_GB,
        ),
        Figure(
            name="memory of all processes at rest",
            value=median(resting or [peak]),
            unit="GB",
            row="P12",
        ),
    ]


def is_gold_green(world: World) -> bool:
    """Whether a gold table was made and all of its checks passed."""
    made = [key for key in GOLD if world.page.materializations(key)]
    checks = world.page.checks() if made else {}
    return any(
        all(passed for name, passed in checks.items() if name.startswith(f"{key}:")) for key in made
    )


def _busy_times(world: World) -> list[tuple[float, float]]:
    """Start and end of each run, in seconds since 1970."""
    return [(run["creationTime"], run["endTime"] or time.time()) for run in world.page.runs()]


@contextmanager
def _memory_of(world: World) -> Iterator[list[tuple[float, float]]]:
    """Samples of (time, memory in GB) during the block."""
    looks = list[tuple[float, float]]()
    with repeated(lambda: looks.append((time.time(), _memory_gb(world.home))), pause_seconds=1.0):
        yield looks


def _memory_gb(home: Path) -> float:
    """The proportional set size of all processes with this home in their environment."""
    total = 0
    for process in psutil.process_iter():
        try:
            if process.environ().get("LAKEHOUSE_HOME") == str(home):
                total += process.memory_full_info().pss
        except (psutil.Error, OSError):
            continue  # it has ended
    return total / 1e9


if __name__ == "__main__":
    sys.exit(alone(main))
