"""One Spark Connect server for all tests that need it, and a lake of its own for each."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakehouse.core.settings import Settings, parse_settings
from lakehouse.engine import server
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.spark import connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

type_of_client = Callable[..., "subprocess.Popen[str]"]


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def own_settings(home: Path, **values: str) -> Settings:
    """Settings of a lake with a home, and so a server, of its own."""
    environ = {"LAKEHOUSE_HOME": str(home), "LAKEHOUSE_SPARK_PORT": str(free_port()), "LAKEHOUSE_SPARK_MEMORY": "1g", **values}
    return parse_settings({"LAKEHOUSE_REPLAY": "off", **environ}, base=home)


@pytest.fixture(scope="session")
def shared_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of the shared server, which runs until the last test has ended."""
    settings = own_settings(tmp_path_factory.mktemp("shared"))
    with server.supervised(settings):  # so that not even a test run that is killed leaves a server behind
        yield settings


@pytest.fixture(scope="session")
def spark(shared_settings: Settings) -> Iterator["SparkSession"]:
    """A session on the shared server."""
    session = connect(shared_settings)
    yield session
    session.stop()


@pytest.fixture
def settings(shared_settings: Settings, tmp_path: Path) -> Settings:
    """Settings of a fresh lake on the shared server."""
    return replace(shared_settings, root=str(tmp_path / "lake"))


@pytest.fixture
def lake(settings: Settings) -> Lake:
    """A fresh lake on the shared server."""
    return open_lake(settings)


@pytest.fixture
def new_client() -> Iterator[type_of_client]:
    """Starts a Python program as a client of its own, with a lake's settings in its environment; ends it with the test."""
    clients: list[subprocess.Popen[str]] = []

    def start(program: str, settings: Settings, *arguments: str, environ: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        mine = {name: value for name, value in os.environ.items() if not name.startswith("LAKEHOUSE_")}
        clients.append(
            subprocess.Popen(
                [sys.executable, "-c", program, *arguments],
                env={**mine, **settings.as_environ(), **(environ or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return clients[-1]

    yield start
    for client in clients:
        client.kill()
        client.communicate()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The journeys first: they are the longest, and nothing may be left to wait for alone at the end."""
    items.sort(key=lambda item: "journeys" not in item.path.parts)
