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

from lakehouse.assets import dagster_records
from lakehouse.assets.dagster_records import (
    KEPT_RUNS,
    delete_rest,
    delete_runs,
    old_runs,
)
from lakehouse.assets.home import dagster_home
from lakehouse.base.text import DAY_MS, HOUR_MS
from lakehouse_tests.support.example_assets import example_settings

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


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dagster's folder after one run of `rare`, one that observes `often`, and four of `often`."""
    home = dagster_home(example_settings(tmp_path_factory.mktemp("recorded")))
    with dg.DagsterInstance.from_config(str(home)) as opened:
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
        checks[check].evaluation,
    ]


def upkeep(instance: dg.DagsterInstance, *, now_ms: int) -> list[str]:
    old = old_runs(instance, days=7, now_ms=now_ms)
    delete_runs(instance, old)
    delete_rest(instance, now_ms=now_ms)
    return old


def test_old_runs_go_and_what_is_newest_of_each_asset_stays(instance: dg.DagsterInstance) -> None:
    runs = [run.run_id for run in reversed(instance.get_runs())]
    later = now_ms() + 8 * DAY_MS
    before = newest(instance)
    old_table_file = Path(instance.root_directory).parent / "lake" / "bronze" / "old.db"
    old_table_file.parent.mkdir(parents=True)
    old_table_file.touch()
    os.utime(old_table_file, (0, 0))
    assert upkeep(instance, now_ms=later) == runs[2:5] and old_table_file.exists()
    assert files_of(instance) == {*runs[:2], runs[5]}
    assert newest(instance) == before
    assert [run.run_id for run in reversed(instance.get_runs())] == [*runs[:2], runs[5]]
    assert len(instance.fetch_materializations(OFTEN, limit=10).records) == 1
    with sqlite3.connect(Path(instance.root_directory) / "history/runs/index.db") as index:
        left = index.execute("SELECT DISTINCT run_id FROM asset_check_executions").fetchall()
    assert left == [(runs[5],)]
    assert upkeep(instance, now_ms=later) == []


def test_the_newest_runs_stay_for_the_sensors_and_failed_ones_for_days(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run.run_id for run in reversed(instance.get_runs())]
    instance.report_run_failed(instance.get_run_by_id(runs[2]))
    monkeypatch.setattr(dagster_records, "KEPT_RUNS", 2)
    assert old_runs(instance, days=7, now_ms=now_ms() + 2 * HOUR_MS) == [runs[3]]
    assert old_runs(instance, days=7, now_ms=now_ms()) == []
    assert KEPT_RUNS > dagster_records._RUNS_LOOKED_AT


def test_a_deletion_that_dies_is_finished_by_the_next(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run.run_id for run in reversed(instance.get_runs())]
    later = now_ms() + 8 * DAY_MS
    before = newest(instance)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(dg.DagsterInstance, "delete_run", die)
        with pytest.raises(KeyboardInterrupt):
            upkeep(instance, now_ms=later)
    upkeep(instance, now_ms=later)
    assert files_of(instance) == {*runs[:2], runs[5]} and newest(instance) == before


def test_old_events_without_a_run_go_and_the_newest_stay(instance: dg.DagsterInstance) -> None:
    for number in range(5):
        tags = {"number": str(number)}
        instance.report_runless_asset_event(dg.AssetMaterialization("ranking", tags=tags))
    delete_rest(instance, now_ms=now_ms())
    assert len(instance.all_logs("")) == 5
    delete_rest(instance, now_ms=now_ms() + DAY_MS)
    left = instance.fetch_materializations(dg.AssetKey("ranking"), limit=10).records
    assert [each.asset_materialization.tags["number"] for each in left] == ["4"]  # type: ignore[union-attr]
    assert len(instance.all_logs("")) == 1
