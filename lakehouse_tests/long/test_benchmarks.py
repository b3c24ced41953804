"""Benchmarks that need Spark, at small sizes: on the server of all tests, or in their own process."""

import subprocess
import sys

import pytest

from benchmarks.catalog import BENCHMARKS, Benchmark
from benchmarks.records import ROOT
from lakehouse.core.settings import Settings
from lakehouse_tests.benchmarks.test_with_spark import run_small, running

__all__ = ["running"]


@pytest.mark.spark
@pytest.mark.parametrize("name", [each.name for each in BENCHMARKS if each.server == "own"])
def test_a_benchmark_runs_small(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--smoke", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


ON_ANY_SERVER = [each for each in BENCHMARKS if each.server == "any"]


@pytest.mark.parametrize("benchmark", ON_ANY_SERVER, ids=lambda benchmark: benchmark.name)
def test_a_benchmark_on_the_shared_server_runs_small(
    benchmark: Benchmark,
    running: Settings,
) -> None:
    run_small(benchmark, running)
