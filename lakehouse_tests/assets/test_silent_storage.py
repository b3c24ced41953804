"""Storage that accepts connections and never answers: the tick of each sensor ends, and the other tables are served."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse import Append, Landing, Table
from lakehouse.assets.keys import table_key
from lakehouse.declare.adopted import adopted_lines
from lakehouse.declare.table import Adopted
from lakehouse.definitions import define
from lakehouse.lake.lake import open_lake
from lakehouse.land.asset import landing_sensor
from lakehouse.store import S3Store, TimeBudget
from lakehouse_tests.silent_server import half_silent_server, silent_server
from lakehouse_tests.support.dagster_events import skip_text, tick_of
from lakehouse_tests.support.example_assets import example_settings


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The environment leads boto3 to a server that never answers, for which a tick has little patience."""
    with silent_server() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        defaults: Any = TimeBudget.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "read_seconds", 0.1)
        yield server.endpoint


def landed(name: str, **more: str) -> Table:
    """A table with a landing prefix of its own."""
    source = Landing(prefix=f"landing/{name}/", format="json", schema="id STRING", **more)
    return Table(key=f"bronze/{name}", source=source, write=Append())


def test_the_tick_of_each_sensor_ends_and_says_that_storage_does_not_answer(
    tmp_path: Path, instance: dg.DagsterInstance, silent: str
) -> None:
    away = Table(key="silver/away", write=Adopted(uri="s3://other/table"))
    (tmp_path / "adopted.toml").write_text(adopted_lines(away))
    told = {"LAKEHOUSE_ROOT": "s3://bucket/lake", "LAKEHOUSE_ADOPTED": "adopted.toml"}
    definitions = define(example_settings(tmp_path, **told))
    texts = {
        sensor.name: skip_text(tick_of(sensor, instance))
        for sensor in definitions.sensors or []
        if isinstance(sensor, dg.SensorDefinition)
        and not isinstance(sensor, dg.AutomationConditionSensorDefinition)
    }
    names = {f"{kind}_sensor" for kind in ("compaction", "landing", "inventory", "observation")}
    assert texts.keys() == names
    assert all("Read timeout" in text for text in texts.values())
    assert texts["observation_sensor"].startswith("silver/away: ")
    assert "no compaction is requested" in texts["compaction_sensor"]


def test_a_prefix_that_is_not_answered_holds_up_no_other_table(
    tmp_path: Path,
    instance: dg.DagsterInstance,
    bucket: str,
    aws: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = [landed(name) for name in ("a", "b", "c")]
    store = S3Store(bucket, "lake")
    for name in "bc":
        store.put(f"landing/{name}/1.json", b'{"id": "x"}')
    budget = TimeBudget(read_seconds=1, late_seconds=1)
    with half_silent_server(aws, lambda path: "landing%2Fa" in path) as half_silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", half_silent)
        lake = open_lake(example_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake"))
        sensor = landing_sensor(tables, lake, budget=budget)
        assert "bronze/b: left for the next tick" in skip_text(tick_of(sensor, instance))
        requested = set[dg.AssetKey]()
        # The first of them suffices, unless the machine stands still for seconds.
        for _ in range(5):
            for request in tick_of(sensor, instance).run_requests or []:
                requested |= {*(request.asset_selection or ())}
            if len(requested) == 2:
                break
    assert requested == {table_key(table) for table in tables[1:]}
