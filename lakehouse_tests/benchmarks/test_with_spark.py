"""Plans of random tables are carried out exactly as predicted; other benchmarks run in `long`."""

import importlib
from collections.abc import Iterator

import pytest

from benchmarks import fresh
from benchmarks.catalog import BENCHMARKS, Benchmark
from benchmarks.figures import tell
from benchmarks.own_lake import on_server
from lakehouse.core.settings import Settings
from lakehouse.engine.spark import open_session


@pytest.fixture
def running(shared_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """The shared server's settings. Benchmarks end their session or change it, so they get one."""
    monkeypatch.setattr(open_session, "_opened", opened := {})
    yield shared_settings
    for _, spark in opened.values():
        if not spark.is_stopped:
            spark.stop()


def run_small(benchmark: Benchmark, running: Settings) -> None:
    """Run the benchmark at its size for tests and expect its goals to be met."""
    with fresh.smoke(), on_server(running):
        figures = importlib.import_module(f"benchmarks.{benchmark.name}").main(*benchmark.smoke)
    assert figures and tell(figures, smoke=True) == 0


def test_random_tables_are_compacted_exactly_as_planned(running: Settings) -> None:
    [benchmark] = [each for each in BENCHMARKS if each.name == "random_tables"]
    run_small(benchmark, running)
