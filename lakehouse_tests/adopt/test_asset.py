"""Tables that others write, in Dagster: observed when their logs change, and never made. No Java."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from lakehouse.adopt.asset import observation_sensor, observed_asset
from lakehouse.assets.dagster_records import newest_facts
from lakehouse.assets.keys import compaction_key, table_key, vacuum_key
from lakehouse.base.errors import Transient
from lakehouse.declare.adopted import adopted_lines, adopted_table
from lakehouse.declare.table import Adopted, Table
from lakehouse.definitions import define
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.store import DiskStore, TimeBudget
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import skip_text, tick_of
from lakehouse_tests.support.example_assets import example_settings

pytestmark = pytest.mark.usefixtures("no_java")


@pytest.fixture
def orders(tmp_path: Path) -> LogBuilder:
    """The log of a table outside of the lake."""
    return (
        LogBuilder(DiskStore(tmp_path / "w"), "orders")
        .create()
        .append([(f"f{number}", 10, 1) for number in range(16)])
        .store_data()
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """The same table, adopted."""
    return adopted_table("silver/orders", str(tmp_path / "w/orders"))


@pytest.fixture
def lake(tmp_path: Path, table: Table, orders: LogBuilder) -> Lake:
    """The lake that adopts it."""
    return open_lake(example_settings(tmp_path / "home"), tables=[table])


class Ticks:
    """Ticks of the observation sensor, one after the other, whose events are recorded."""

    def __init__(
        self,
        lake: Lake,
        tables: Sequence[Table],
        instance: dg.DagsterInstance,
        budget: TimeBudget | None = None,
    ) -> None:
        self.sensor = observation_sensor(tables, lake, budget=budget)
        self.instance, self.cursor = instance, None

    def tick(self) -> list[dg.AssetObservation | dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        result = tick_of(self.sensor, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return list(result.asset_events)

    def observed(self) -> list[object]:
        """The versions that a tick observed."""
        return [
            event.metadata["lakehouse/version"].value
            for event in self.tick()
            if isinstance(event, dg.AssetObservation)
        ]


@pytest.fixture
def ticks(lake: Lake, table: Table, orders: LogBuilder, instance: dg.DagsterInstance) -> Ticks:
    """The ticks of the one table."""
    return Ticks(lake, [table], instance)


def of_asset(table: Table, *asset_key: str) -> Table:
    """The same table, written by an asset of the same project, which may not have done so yet."""
    assert isinstance(table.write, Adopted)
    return replace(table, write=replace(table.write, asset_key=asset_key))


class SlowLogs:
    """Logs of which each takes all the time that a tick has; those of `away` do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *away: str) -> None:
        self.read, self._away, self._facts = list[str](), away, Lake.facts
        self._seconds = 0.0
        self.budget = TimeBudget(clock=lambda: self._seconds)
        monkeypatch.setattr(Lake, "facts", lambda lake, key: self._answer(lake, key))

    def _answer(self, lake: Lake, key: str) -> TableFacts | None:
        self.read.append(key)
        self._seconds += self.budget.late_seconds
        if key in self._away:
            raise Transient(f"{key} does not answer")
        return self._facts(lake, key)


def test_a_log_is_read_when_it_changed_and_else_two_files_are_asked_for(
    table: Table, orders: LogBuilder, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ticks.tick()
    [observation] = [event for event in first if isinstance(event, dg.AssetObservation)]
    assert observation.asset_key == table_key(table)
    assert observation.metadata["lakehouse/mergeable_file_count"].value == 16
    assert (observation.data_version or "").startswith("1@")
    checks = {event.check_name for event in first if isinstance(event, dg.AssetCheckEvaluation)}
    assert checks == {"readable", "small_files", "log_debt", "breaker"}
    assert all(
        event.passed
        for event in first
        if isinstance(event, dg.AssetCheckEvaluation) and event.check_name == "readable"
    )
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "facts", lambda *_: pytest.fail("the log is read"))
        assert ticks.tick() == []
    orders.append([("more", 10, 1)])
    assert ticks.observed() == [2]
    orders.optimize(["f0", "f1"], into=("large", 20, 2))
    [observation] = ticks.tick()
    assert isinstance(observation, dg.AssetObservation)
    assert observation.metadata["lakehouse/version"].value == 3
    assert (observation.data_version or "").partition("@")[0] == "2"


def test_a_table_made_anew_is_read_again_from_version_0(ticks: Ticks, tmp_path: Path) -> None:
    assert ticks.observed() == [1]
    shutil.rmtree(tmp_path / "w/orders")
    LogBuilder(DiskStore(tmp_path / "w"), "orders").create()
    assert ticks.observed() == [0]


@pytest.mark.parametrize("moved_ms", [-3_600_000, 3_600_000])
def test_a_log_that_cannot_be_read_fails_its_check_and_is_read_again_an_hour_later_or_when_the_clock_is_set_back(
    orders: LogBuilder, ticks: Ticks, moved_ms: int
) -> None:
    orders.lose(1).append([("more", 10, 1)])
    [result] = ticks.tick()
    assert isinstance(result, dg.AssetCheckEvaluation)
    assert (result.check_name, result.passed) == ("readable", False)
    assert ticks.tick() == []
    seen = json.loads(ticks.cursor or "")
    seen["silver/orders"]["checked_ms"] += moved_ms
    ticks.cursor = json.dumps(seen)
    assert len(ticks.tick()) == 1


@pytest.mark.parametrize("away", [(), ("silver/t0",)])
def test_each_table_has_its_turn_where_a_tick_has_not_the_time_for_all(
    tmp_path: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    away: Sequence[str],
) -> None:
    logs = [LogBuilder(DiskStore(tmp_path / "w"), f"t{number}").create() for number in range(3)]
    tables = [
        adopted_table(f"silver/t{number}", str(tmp_path / f"w/t{number}")) for number in range(3)
    ]
    slow = SlowLogs(monkeypatch, *away)
    lake = open_lake(example_settings(tmp_path / "home"), tables=tables)
    ticks = Ticks(lake, tables, instance, slow.budget)
    for number in range(6):
        ticks.tick()
        for log in logs:
            log.append([(f"f{number}", 10, 1)])
    assert slow.read == [table.key for table in tables] * 2


def test_a_table_whose_storage_falls_silent_is_named_and_not_read_and_what_is_known_of_it_stays(
    table: Table, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(lake: Lake, key: str, newest: object) -> bool:
        raise Transient(f"{key} does not answer")

    ticks.tick()
    seen = json.loads(ticks.cursor or "")
    monkeypatch.setattr(Lake, "has_moved_on", silent)
    result = tick_of(ticks.sensor, ticks.instance, cursor=ticks.cursor)
    assert skip_text(result) == "silver/orders: silver/orders does not answer"
    assert json.loads(result.cursor or "") == seen


def test_one_that_cannot_be_read_does_not_hide_the_others_and_a_broken_cursor_forgets(
    tmp_path: Path, lake: Lake, table: Table, instance: dg.DagsterInstance
) -> None:
    gone = adopted_table("silver/gone", str(tmp_path / "w/gone"))
    both = open_lake(lake.settings, tables=[gone, table])
    ticks = Ticks(both, [gone, table], instance)
    assert ticks.observed() == [1]
    ticks.cursor = "no json"
    assert ticks.observed() == [1]


def test_what_its_writer_records_of_it_does_not_hide_what_we_know(
    lake: Lake, table: Table, orders: LogBuilder, instance: dg.DagsterInstance
) -> None:
    table = of_asset(table, "sales", "orders")
    ticks = Ticks(lake, [table], instance)
    ticks.tick()
    instance.report_runless_asset_event(
        dg.AssetMaterialization(["sales", "orders"], metadata={"rows": 16})
    )
    instance.report_runless_asset_event(
        dg.AssetObservation(["sales", "orders"], metadata={"rows": 16})
    )
    assert newest_facts(instance, [table])[table.key].values["lakehouse/version"] == 1


def test_a_person_observes_it_by_hand(
    lake: Lake, table: Table, orders: LogBuilder, instance: dg.DagsterInstance
) -> None:
    definitions = dg.Definitions(assets=[observed_asset(table, lake)])
    result = definitions.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance
    )
    [event] = result.get_asset_observation_events()
    assert event.asset_observation_data.asset_observation.metadata["lakehouse/version"].value == 1


def test_an_adopted_table_has_checks_compaction_and_vacuum_and_is_never_made(
    tmp_path: Path, table: Table, orders: LogBuilder
) -> None:
    settings = example_settings(
        tmp_path / "home",
        LAKEHOUSE_TABLES="lakehouse_tests.support.example_assets",
        LAKEHOUSE_ADOPTED=str(tmp_path / "adopted.toml"),
    )
    other = adopted_table("silver/foreign", str(tmp_path / "w/orders"))
    (tmp_path / "adopted.toml").write_text(adopted_lines(other))
    definitions = define(settings)
    graph, repository = definitions.resolve_asset_graph(), definitions.get_repository_def()
    assert table_key(other) in graph.observable_asset_keys
    assert table_key(other) not in graph.materializable_asset_keys
    assert {compaction_key(other), vacuum_key(other)} <= set(graph.materializable_asset_keys)
    checks = {key.name for key in graph.asset_check_keys if key.asset_key == table_key(other)}
    assert checks == {"readable", "small_files", "log_debt", "breaker"}
    status = repository.get_sensor_def("observation_sensor").default_status
    assert status is dg.DefaultSensorStatus.RUNNING
