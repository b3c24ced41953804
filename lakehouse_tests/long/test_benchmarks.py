"""The benchmarks that start Spark, at sizes of seconds, each as `make bench` runs it: in a process of its own."""

import subprocess
import sys

import pytest

from benchmarks.catalog import BENCHMARKS
from benchmarks.records import ROOT


@pytest.mark.spark
@pytest.mark.parametrize("name", [benchmark.name for benchmark in BENCHMARKS if benchmark.starts_spark])
def test_a_benchmark_with_spark_runs_in_seconds(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--smoke", name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
