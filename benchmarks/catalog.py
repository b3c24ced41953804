"""The benchmarks that `make bench` runs, quick ones first, each in its own process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A module of this folder whose `main(…)` returns figures; with the arguments `smoke` in seconds.

    `server` is the Spark server that it needs: none, any (`own_lake`), or its own. With none or
    any, the smoke run is part of `make test`.
    """

    name: str
    smoke: Sequence[Any]
    server: Literal["none", "any", "own"] = "any"


BENCHMARKS = (
    Benchmark(name="big_log", smoke=(1, 200), server="none"),
    Benchmark(name="inventory", smoke=(200, 2), server="none"),
    Benchmark(name="vacuum_lake", smoke=(1,), server="none"),
    Benchmark(name="fleet", smoke=(4,), server="none"),
    Benchmark(name="requests", smoke=("lakehouse plan",), server="own"),
    Benchmark(name="landing", smoke=(4, 5, 100)),
    Benchmark(name="mutants", smoke=("vacuum.plan.candidates",), server="own"),
    Benchmark(name="throughput", smoke=(8, 1, 1, 20, 0, 2, 20)),
    Benchmark(name="pipeline_overhead", smoke=(1, 0, 2)),
    Benchmark(name="demo", smoke=(0,), server="own"),
    Benchmark(name="records_size", smoke=(1,), server="own"),
    Benchmark(name="calibration", smoke=(1, 1, 100)),
    Benchmark(name="read_slowdown", smoke=(1, 1, 400, 1)),
    Benchmark(name="vacuum", smoke=(200,), server="own"),
    Benchmark(name="random_tables", smoke=(1,)),
)
NAMES = tuple(benchmark.name for benchmark in BENCHMARKS)
