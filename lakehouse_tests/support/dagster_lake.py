"""Fixtures of tests with Dagster: an instance, and a lake for its assets."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakehouse.lake.lake import Lake, open_lake

if TYPE_CHECKING:
    import dagster as dg


@pytest.fixture(scope="session", autouse=True)
def one_set_of_migrations() -> Iterator[None]:
    """Alembic reads the migrations of Dagster's records once, and not for each instance."""
    if "dagster" not in sys.modules:  # not where only plans are tested
        yield
        return
    from alembic.script import ScriptDirectory

    read, made = ScriptDirectory.from_config, dict[str | None, ScriptDirectory]()

    def once(config: Any) -> ScriptDirectory:
        folder = config.get_main_option("script_location")
        if folder not in made:
            made[folder] = read(config)
        return made[folder]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", once)
        yield


@pytest.fixture
def instance() -> "Iterator[dg.DagsterInstance]":
    """Dagster's records of an instance that nothing happened on yet."""
    import dagster as dg

    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def dagster_lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A lake whose files are in memory; for a test with Spark one on the shared server."""
    from lakehouse_tests.support.example_assets import example_lake

    if request.node.get_closest_marker("spark"):
        return open_lake(request.getfixturevalue("settings"))
    return example_lake(tmp_path)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no Java can be found, and no program at all."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
