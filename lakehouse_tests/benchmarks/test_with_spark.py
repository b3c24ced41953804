"""Benchmarks that need a Spark server and no more, at sizes of seconds, on the server of all tests; others in `long`."""

import importlib
from collections.abc import Iterator

import pytest

from benchmarks import fresh
from benchmarks.catalog import BENCHMARKS, Benchmark
from benchmarks.figures import tell
from benchmarks.own_lake import on_server
from lakehouse.core.settings import Settings
from lakehouse.engine.spark import sessions


@pytest.fixture
def running(shared_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The shared server's settings; the benchmark's session is not the one of the tests, since some end theirs or change its settings."""
    monkeypatch.setattr(sessions, "_opened", opened := {})
    yield shared_settings
    for _, spark in opened.values():
        if not spark.is_stopped:
            spark.stop()


ON_ANY_SERVER = [each for each in BENCHMARKS if each.server == "any"]


@pytest.mark.parametrize("benchmark", ON_ANY_SERVER, ids=lambda benchmark: benchmark.name)
def test_a_benchmark_with_spark_runs_in_seconds(benchmark: Benchmark, running: Settings) -> None:
    with fresh.smoke(), on_server(running):
        figures = importlib.import_module(f"benchmarks.{benchmark.name}").main(*benchmark.smoke)
    assert figures and tell(figures, smoke=True) == 0
