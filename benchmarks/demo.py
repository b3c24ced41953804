"""The demo as `make run` starts it, in a home of its own: seconds to the first gold table and to a compaction's commit, and its memory.

`python -m benchmarks.demo [COMPACTIONS]`. It waits until the sensor has compacted so often. Memory is the proportional set size of all
processes together, looked at every second. At rest is the median of the looks at which no run was going on.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil

from benchmarks.figures import Figure, alone, middle
from benchmarks.request_to_commit import steps_of
from lakehouse_tests.journeys.world import World, wait_for

GOLD = ("gold/carrier_daily", "gold/route_delays")
MOST_SECONDS_OVER_OPTIMIZE = 3.0
MOST_PEAK_GB = 4.0  # a laptop of 8 GB: half for the system and a browser
_MEMORY = "2g"  # as the setting's own default


def main(compactions: int = 4) -> list[Figure]:
    """What a person waits for, and what the laptop must have."""
    with tempfile.TemporaryDirectory() as folder:
        home, began = Path(folder) / "home", time.monotonic()
        with World(home, LAKEHOUSE_SPARK_MEMORY=_MEMORY) as world, _memory_of(world) as looks:
            page_seconds = time.monotonic() - began
            wait_for("a gold table is there and its checks are green", lambda: _is_gold_green(world))
            gold_seconds = time.monotonic() - began
            print(f"  page after {page_seconds:.1f} s, first green gold table after {gold_seconds:.1f} s", flush=True)
            if compactions:
                wait_for(f"{compactions} compactions by the sensor", lambda: len(steps_of(world.page, home)) >= compactions)
            steps, busy = steps_of(world.page, home), _busy_times(world)
        again = time.monotonic()
        with World(home, LAKEHOUSE_SPARK_MEMORY=_MEMORY):
            again_seconds = time.monotonic() - again
    resting = [size for at, size in looks if not any(start <= at <= end for start, end in busy)]
    peak = max(size for _, size in looks)
    return [
        *(
            [
                middle(
                    "seconds over the bare OPTIMIZE",
                    [row["over_optimize"] for row in steps],
                    unit="s",
                    row="P4",
                    at_most=MOST_SECONDS_OVER_OPTIMIZE,
                )
            ]
            if steps
            else []
        ),
        *(middle(name, [row[step] for row in steps], unit="s", row="P4") for step, name in _STEPS.items() if steps),
        Figure(name="from the start to the first gold table with green checks, new home", value=gold_seconds, unit="s", row="P11"),
        Figure(
            name="from the start to the page, new home",
            value=page_seconds,
            unit="s",
            row="P11",
            peers={"the same home again": again_seconds},
        ),
        Figure(name="memory of all processes at peak", value=peak, unit="GB", row="P12", at_most=MOST_PEAK_GB),
        Figure(name="memory of all processes at rest", value=median(resting or [peak]), unit="GB", row="P12"),
    ]


_STEPS = {
    "to_start": "from the request to the run's start",
    "start_to_step": "from there to its step",
    "step_to_commit": "from there to the commit",
}


def _is_gold_green(world: World) -> bool:
    made = [key for key in GOLD if world.page.materializations(key)]
    checks = world.page.checks() if made else {}
    return any(all(passed for name, passed in checks.items() if name.startswith(f"{key}:")) for key in made)


def _busy_times(world: World) -> list[tuple[float, float]]:
    """When runs were going on, by the clock."""
    return [(run["creationTime"], run["endTime"] or time.time()) for run in world.page.runs()]


@contextmanager
def _memory_of(world: World) -> Iterator[list[tuple[float, float]]]:
    """Looks at the memory in GB, with their times, until it ends."""
    looks, is_over = list[tuple[float, float]](), threading.Event()

    def look() -> None:
        while not is_over.is_set():
            looks.append((time.time(), _memory_gb(world.home)))
            is_over.wait(1.0)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield looks
    finally:
        is_over.set()
        thread.join()


def _memory_gb(home: Path) -> float:
    """The proportional set size of all processes that carry this home in their environment."""
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
