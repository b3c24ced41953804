"""The benchmarks that `make bench` runs, quick ones first, each alone in a process of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A module of this folder whose `main(…)` gives figures.

    `seconds` is how long it takes on two cores, for the estimate until it is recorded; with the arguments `smoke` it takes a few.
    `server` is the Spark server that it needs: none, any one (`own_lake`), or one that it starts as it has to be. Where it is any one, the
    smoke run is part of `make test`.
    """

    name: str
    seconds: float
    smoke: Sequence[Any]
    server: Literal["none", "any", "own"] = "any"


BENCHMARKS = (
    Benchmark(name="big_log", seconds=150, smoke=(1, 200), server="none"),
    Benchmark(name="inventory", seconds=60, smoke=(100, 200), server="none"),
    Benchmark(name="vacuum_lake", seconds=180, smoke=(1,), server="none"),
    Benchmark(name="vacuum_memory", seconds=120, smoke=(100, 200), server="none"),
    Benchmark(name="rewritten", seconds=20, smoke=(32,), server="none"),
    Benchmark(name="fleet", seconds=120, smoke=(4,), server="none"),
    Benchmark(name="requests", seconds=120, smoke=("lakehouse plan",), server="own"),
    Benchmark(name="landing", seconds=200, smoke=(4, 5)),
    Benchmark(name="entrance", seconds=600, smoke=(1, 2, 2, 0, 1)),
    Benchmark(name="mutants", seconds=700, smoke=("core.records",), server="own"),
    Benchmark(name="throughput", seconds=240, smoke=(8, 1, 1, 20, 0, 2, 20)),
    Benchmark(name="pipeline_overhead", seconds=300, smoke=(1, 0, 2)),
    Benchmark(name="interpreted", seconds=700, smoke=(1, 0, 1, 1)),
    Benchmark(name="demo", seconds=700, smoke=(0,), server="own"),
    Benchmark(name="records_size", seconds=900, smoke=(1,), server="own"),
    Benchmark(name="changes", seconds=500, smoke=(2_000, 2, 1)),
    Benchmark(name="calibration", seconds=200, smoke=(1, 1, 100)),
    Benchmark(name="rates", seconds=330, smoke=(1, 1)),
    Benchmark(name="read_slowdown", seconds=300, smoke=(1, 1, 400, 1)),
    Benchmark(name="phases", seconds=400, smoke=(1, 100, 1, 1)),
    Benchmark(name="beside_writers", seconds=300, smoke=(4,)),
    Benchmark(name="beside_changes", seconds=700, smoke=(2,)),
    Benchmark(name="vacuum", seconds=900, smoke=(200,), server="own"),
    Benchmark(name="random_tables", seconds=900, smoke=(1,)),
    Benchmark(name="four_weeks", seconds=200, smoke=(1,), server="own"),
    Benchmark(name="eight_weeks", seconds=2_600, smoke=(1, 1, 1)),
)
NAMES = tuple(benchmark.name for benchmark in BENCHMARKS)
