"""What a command that runs an operation itself leaves in Dagster: the same as a run of the operation's asset."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.home import dagster_home
from lakehouse.assets.keys import compaction_key, table_key, vacuum_key
from lakehouse.assets.resources import spark_resource
from lakehouse.base.settings import parse_settings
from lakehouse.compact.asset import compaction_asset
from lakehouse.declare.adopted import adopted_table
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.vacuum import run as vacuum_run
from lakehouse.vacuum.asset import DELETED, vacuum_asset
from lakehouse.watch.check import check_names
from lakehouse_tests.support.terminal import Terminal

pytestmark = pytest.mark.usefixtures("no_java")
EVENTS = "silver/events"


@pytest.fixture
def adopted(terminal: Terminal, warehouse: Path) -> Terminal:
    """A terminal with one table of twelve small files."""
    terminal.environ["LAKEHOUSE_TABLES"] = "none"
    terminal.json("adopt", str(warehouse / "events"), "--key", EVENTS)
    return terminal


def lake_of(terminal: Terminal) -> Lake:
    return open_lake(parse_settings(terminal.environ, base=terminal.home))


@contextmanager
def records(terminal: Terminal) -> Iterator[dg.DagsterInstance]:
    """Dagster's records of the terminal's lake."""
    with dg.DagsterInstance.from_config(str(dagster_home(lake_of(terminal).settings))) as instance:
        yield instance


def recorded(
    instance: dg.DagsterInstance, table: Table, lake: Lake, key: dg.AssetKey
) -> dict[str, Any]:
    """What Dagster knows of a table and one operation on it, without times and without the run."""
    checks = [dg.AssetCheckKey(table_key(table), name) for name in check_names(table, lake)]
    checks += [dg.AssetCheckKey(vacuum_key(table), DELETED)]
    found = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
    entry = instance.get_latest_materialization_event(key)
    assert entry is not None and entry.asset_materialization is not None
    facts = newest_facts(instance, [table])
    state = {} if table.key not in facts else facts[table.key].values["lakehouse/state"]
    return {
        "table": {name: state.get(name) for name in ("version", "mergeable_file_count")},
        "operation": [*entry.asset_materialization.metadata],
        "checks": {
            each.name: (record.evaluation.passed, record.evaluation.severity)
            for each, record in found.items()
            if record.evaluation is not None
        },
    }


@pytest.mark.parametrize("operation", ["compact", "vacuum"])
def test_dagster_knows_after_a_command_what_it_knows_after_a_run(
    adopted: Terminal, warehouse: Path, instance: dg.DagsterInstance, operation: str
) -> None:
    shutil.copytree(warehouse / "events", warehouse / "copy")
    table = adopted_table(EVENTS, str(warehouse / "copy"))
    lake = open_lake(lake_of(adopted).settings, tables=[table])
    if operation == "compact":
        key, asset = compaction_key(table), compaction_asset(table, lake)
    else:
        key, asset = vacuum_key(table), vacuum_asset(table, lake, lambda: (lake, [table]))
    resources = {"spark": spark_resource(lake.settings)}
    assert dg.materialize([asset], instance=instance, resources=resources).success
    document = adopted.json(operation, EVENTS)
    by_run = recorded(instance, table, lake, key)
    with records(adopted) as own:
        assert recorded(own, table, lake, key) == by_run
        assert own.get_runs_count() == 0
        if operation == "compact":
            assert document["version_after"] == by_run["table"]["version"]
            [commit, *_] = adopted.json("history", EVENTS)["commits"]
            state = newest_facts(own, [table])[EVENTS].values["lakehouse/state"]
            assert state["last_compaction_ms"] == commit["committed_ms"]


def test_what_is_done_stands_if_dagster_cannot_record_it(adopted: Terminal, tmp_path: Path) -> None:
    result = adopted.run("compact", EVENTS, "--json", LAKEHOUSE_DAGSTER_HOME=str(tmp_path))
    assert result.exit_code == 0 and '"version_after": 12' in result.stdout
    assert f"{EVENTS} was compacted, but Dagster did not record it (Refused: " in result.stderr
    assert adopted.json("compact", EVENTS)["version_after"] is None


def test_one_table_of_a_vacuum_with_a_defect_stops_itself_alone(
    adopted: Terminal, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adopted.json("adopt", str(warehouse / "customers"), "--key", "silver/customers")
    real = vacuum_run.vacuum

    def vacuum(facts: Any, session: Any, table: Table, **options: Any) -> Any:
        if table.key == EVENTS:
            raise ValueError("no such thing")
        return real(facts, session, table, **options)

    monkeypatch.setattr(vacuum_run, "vacuum", vacuum)
    documents = {each["table"]: each for each in adopted.json("vacuum", exit_code=1)}
    assert documents[EVENTS]["sentence"].endswith("ValueError: no such thing")
    assert documents["silver/customers"]["reason"] == "NOTHING_PAST"
    with records(adopted) as instance:
        keys = [dg.AssetKey(["vacuum", *key.split("/")]) for key in documents]
        done = [key for key in keys if instance.get_latest_materialization_event(key)]
        assert done == [dg.AssetKey(["vacuum", "silver", "customers"])]
