"""Benchmarks that need Spark, at small sizes: on the server of all tests, or in their own process."""

import importlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from benchmarks import fresh
from benchmarks.catalog import BENCHMARKS, Benchmark
from benchmarks.figures import tell
from benchmarks.own_lake import on_server
from benchmarks.records import ROOT
from lakehouse.base.settings import Settings
from lakehouse.spark import session as open_session


@pytest.fixture
def running(shared_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The shared server's settings. Benchmarks end their session or change it, so they get one."""
    monkeypatch.setattr(open_session, "_sessions", opened := {})
    yield shared_settings
    for _, spark in opened.values():
        if not spark.is_stopped:
            spark.stop()


def run_small(benchmark: Benchmark, running: Settings) -> None:
    """Run the benchmark at its size for tests and expect its goals to be met."""
    with fresh.smoke(), on_server(running):
        figures = importlib.import_module(f"benchmarks.{benchmark.name}").main(*benchmark.smoke)
    assert figures and tell(figures, smoke=True) == 0


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
