"""The upkeep of Dagster's own records, on the records of real runs."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakehouse.core.errors import Refused
from lakehouse.core.units import DAY_MS
from lakehouse.defs import sql_records
from lakehouse.defs.dagster_records import recent_runs
from lakehouse.defs.dagster_retention import RECORDS_KEY, prune, records_schedule
from lakehouse.runtime.dagster_home import dagster_home
from lakehouse_tests.defs.example import example_settings

RARE, OFTEN = dg.AssetKey("rare"), dg.AssetKey("often")


@dg.asset(name="rare")
def rare() -> None:
    print("made once")


@dg.asset(name="often", check_specs=[dg.AssetCheckSpec("good", asset="often")])
def often() -> Iterator[Any]:
    print("made often")
    yield dg.MaterializeResult()
    yield dg.AssetCheckResult(passed=True)


@dg.asset(name="compacted")
def compacted(context: dg.AssetExecutionContext) -> None:
    context.log_event(dg.AssetObservation(OFTEN))


@dg.asset(name="daily", partitions_def=dg.StaticPartitionsDefinition(["monday", "tuesday"]))
def daily() -> None:
    """Made once for each partition."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dagster's folder after two runs of `daily`, one of `rare`, one that observes `often`, and four of `often`."""
    home = dagster_home(example_settings(tmp_path_factory.mktemp("recorded")))
    with dg.DagsterInstance.from_config(str(home)) as opened:
        for day in ("monday", "tuesday"):
            assert dg.materialize([daily], instance=opened, partition_key=day).success
        for asset in (rare, compacted, often, often, often, often):
            assert dg.materialize([asset], instance=opened).success
    return home


@pytest.fixture
def instance(recorded: Path, tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """A copy of these records."""
    home = dagster_home(example_settings(tmp_path))
    for folder in ("history", "schedules", "logs"):
        shutil.copytree(recorded / folder, home / folder)
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened


def now_ms() -> int:
    return round(datetime.now(UTC).timestamp() * 1000)


def files_of(instance: dg.DagsterInstance) -> set[str]:
    """The files of runs and their output, by the ids of the runs."""
    home = Path(instance.root_directory)
    of_events = {file.stem for file in (home / "history" / "runs").glob("*-*.db")}
    return of_events | {folder.name for folder in (home / "logs").iterdir()}


def newest(instance: dg.DagsterInstance) -> list[object]:
    """What Dagster says of each asset's newest materialization, observation and check."""
    check = dg.AssetCheckKey(OFTEN, "good")
    checks = instance.event_log_storage.get_latest_asset_check_execution_by_key([check])
    return [
        *(record.asset_entry for record in instance.get_asset_records([RARE, OFTEN])),
        instance.fetch_materializations(RARE, limit=1).records,
        instance.fetch_materializations(OFTEN, limit=1).records,
        instance.fetch_observations(OFTEN, limit=1).records,
        instance.get_materialized_partitions(dg.AssetKey("daily")),
        checks[check].evaluation,
    ]


def test_old_events_and_output_go_and_what_is_newest_of_each_asset_stays(
    instance: dg.DagsterInstance,
) -> None:
    runs = [run.run_id for run in reversed(instance.get_runs())]
    later = now_ms() + 8 * DAY_MS
    before, counted = newest(instance), recent_runs(instance, now_ms=later)
    old_table_file = Path(instance.root_directory).parent / "lake" / "bronze" / "old.db"
    old_table_file.parent.mkdir(parents=True)
    old_table_file.touch()
    os.utime(old_table_file, (0, 0))
    plan, metadata = prune(instance, days=7, now_ms=later)
    assert plan.events == tuple(runs[4:7]) and old_table_file.exists()
    assert files_of(instance) == {*runs[:4], runs[7]}
    assert newest(instance) == before and recent_runs(instance, now_ms=later) == counted
    assert len(instance.fetch_materializations(OFTEN, limit=10).records) == 1
    assert instance.all_logs(runs[0]) and metadata["lakehouse/bytes"] > 0
    plan, _ = prune(instance, days=7, now_ms=later)
    assert plan.sentence == "Nothing to do."


@pytest.mark.parametrize("step", ["delete_checks", "delete_run_file", "delete_events_without_run"])
def test_upkeep_that_dies_at_a_step_is_finished_by_the_next(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    runs = [run.run_id for run in reversed(instance.get_runs())]
    later = now_ms() + 8 * DAY_MS
    before = newest(instance)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(sql_records.SqlRecords, step, die)
        with pytest.raises(KeyboardInterrupt):
            prune(instance, days=7, now_ms=later)
    prune(instance, days=7, now_ms=later)
    assert files_of(instance) == {*runs[:4], runs[7]}
    assert newest(instance) == before
    with sqlite3.connect(Path(instance.root_directory) / "history/runs/index.db") as index:
        left = index.execute("SELECT DISTINCT run_id FROM asset_check_executions").fetchall()
    assert left == [(runs[7],)]


def test_a_dry_run_lists_what_would_go_and_deletes_nothing(instance: dg.DagsterInstance) -> None:
    before = files_of(instance)
    plan, metadata = prune(instance, days=7, now_ms=now_ms() + 8 * DAY_MS, dry_run=True)
    assert files_of(instance) == before
    assert all(run_id in metadata["lakehouse/going"].value for run_id in plan.events)
    assert len(plan.events) == 3 and all(instance.all_logs(run_id) for run_id in plan.events)


def test_what_ended_within_the_hour_stays(instance: dg.DagsterInstance) -> None:
    plan, _ = prune(instance, days=7, now_ms=now_ms())
    assert plan.sentence == "Nothing to do."


def test_of_events_without_a_run_the_newest_of_each_asset_stay(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_records, "_EVENTS_WITHOUT_RUN", 2)
    for number in range(5):
        tags = {"number": str(number)}
        instance.report_runless_asset_event(dg.AssetMaterialization("ranking", tags=tags))
    _, metadata = prune(instance, days=7, now_ms=now_ms())
    assert metadata["lakehouse/events_without_run"] == 3
    left = instance.fetch_materializations(dg.AssetKey("ranking"), limit=10).records
    assert [each.asset_materialization.tags["number"] for each in left] == ["4", "3"]  # type: ignore[union-attr]
    assert len(instance.all_logs("")) == 2


def test_the_schedule_names_what_it_asks_for_since_a_run_without_a_selection_stands_for_all_tables() -> (
    None
):
    tick = records_schedule().evaluate_tick(dg.build_schedule_context())
    [request] = tick.run_requests or ()
    assert request.asset_selection == [RECORDS_KEY]


def test_records_in_another_database_are_refused() -> None:
    with (
        dg.DagsterInstance.ephemeral() as elsewhere,
        pytest.raises(Refused, match="neither in SQLite files nor in Postgres"),
    ):
        prune(elsewhere, days=7, now_ms=0)
