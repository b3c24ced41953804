"""What the tests of this folder share."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from lakehouse.engine.lake import Lake, open_lake
from lakehouse_tests.defs.example import example_lake


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's records of an instance that nothing happened on yet."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A lake whose files are in memory; for a test with Spark one on the shared server."""
    if request.node.get_closest_marker("spark"):
        return open_lake(request.getfixturevalue("settings"))
    return example_lake(tmp_path)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no Java can be found, and no program at all."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
