"""The benchmarks without Spark run, small."""

import importlib
import os

import boto3
import pytest

from benchmarks import fresh
from benchmarks.catalog import Benchmark
from benchmarks.figures import tell
from lakehouse_tests.benchmarks.test_benchmarks import WITHOUT_SPARK


@pytest.mark.parametrize("benchmark", WITHOUT_SPARK, ids=lambda benchmark: benchmark.name)
def test_a_benchmark_without_spark_runs_in_a_second(
    benchmark: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Benchmarks with Spark: `long/test_benchmarks.py`."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    with fresh.smoke():
        figures = importlib.import_module(f"benchmarks.{benchmark.name}").main(*benchmark.smoke)
    assert figures and tell(figures, smoke=True) == 0
