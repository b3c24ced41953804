"""The benchmarks that `make bench` runs, quick ones first, each in its own process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A module of this folder whose `main(…)` returns figures; with the arguments `smoke` in seconds."""

    name: str
    smoke: Sequence[Any]


BENCHMARKS = (
    Benchmark(name="big_log", smoke=(1, 200)),
    Benchmark(name="inventory", smoke=(200, 2)),
    Benchmark(name="vacuum_lake", smoke=(1,)),
    Benchmark(name="fleet", smoke=(4,)),
    Benchmark(name="requests", smoke=("lakehouse plan",)),
    Benchmark(name="landing", smoke=(4, 5, 100)),
    Benchmark(name="mutants", smoke=("vacuum.plan.candidates",)),
    Benchmark(name="throughput", smoke=(8, 1, 1, 20, 0, 2, 20)),
    Benchmark(name="pipeline_overhead", smoke=(1, 0, 2)),
    Benchmark(name="demo", smoke=(0,)),
    Benchmark(name="records_size", smoke=(1,)),
    Benchmark(name="calibration", smoke=(1, 1, 100)),
    Benchmark(name="read_slowdown", smoke=(1, 1, 400, 1)),
    Benchmark(name="vacuum", smoke=(200,)),
    Benchmark(name="random_tables", smoke=(1,)),
)
NAMES = tuple(benchmark.name for benchmark in BENCHMARKS)
