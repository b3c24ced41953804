"""What the tests of this folder share."""

from collections.abc import Iterator

import dagster as dg
import pytest


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """Dagster's records of an instance that nothing happened on yet."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no Java can be found, and no program at all."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
