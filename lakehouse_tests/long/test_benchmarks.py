"""Each benchmark at a size of seconds."""

import subprocess
import sys

import pytest

from benchmarks.catalog import NAMES
from benchmarks.records import ROOT


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_small(name: str) -> None:
    command = [sys.executable, "-m", "benchmarks", "--smoke", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
