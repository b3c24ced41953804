"""Benchmarks that start more than a test has, each as `make bench` runs it: in a process of its own."""

import subprocess
import sys

import pytest

from benchmarks.catalog import BENCHMARKS
from benchmarks.records import ROOT


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
