"""A lake of a benchmark's own, in a folder that is deleted afterwards, with a Spark Connect server of its own."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

from lakehouse.core.settings import Settings
from lakehouse.runtime import server
from lakehouse_tests.conftest import own_settings

_running = ContextVar[Settings | None]("running", default=None)


@contextmanager
def own_lake(**values: str) -> Iterator[Settings]:
    """Settings of the lake; `values` are environment variables beside those of a test's lake."""
    with tempfile.TemporaryDirectory() as folder:
        settings, running = own_settings(Path(folder, "home"), **values), _running.get()
        if running:
            yield replace(settings, home=running.home, spark_port=running.spark_port)
        else:
            with server.supervised(settings):
                yield settings


@contextmanager
def on_server(running: Settings) -> Iterator[None]:
    """Within it each lake is on a server that is running, for what measures nothing."""
    mark = _running.set(running)
    try:
        yield
    finally:
        _running.reset(mark)
