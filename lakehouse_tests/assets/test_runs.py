"""Runs whose process is gone are closed; those of living processes are let alone."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest
from dagster import DagsterRunStatus
from dagster._core.remote_origin import (
    RegisteredCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)

from lakehouse.assets.home import dagster_home, has_open_runs
from lakehouse.assets.runs import (
    close_dead_runs,
    close_launched_runs,
    machine_tag,
    process_tag,
    recorded_process,
)
from lakehouse.base.processes import identify, process_space
from lakehouse.cli.up import close_dead_runs as close_before_up
from lakehouse_tests.support.example_assets import example_settings

POOL = "table_bronze_orders"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return dagster_home(example_settings(tmp_path))


@pytest.fixture
def records(home: Path) -> Iterator[dg.DagsterInstance]:
    """Records with pools, as `lakehouse up` keeps them."""
    with dg.DagsterInstance.from_config(str(home)) as instance:
        yield instance


@pytest.fixture
def gone() -> tuple[int, str]:
    """A process that was."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        known = identify(process.pid)
    assert not known.is_alive
    return known.pid, known.born


def under_way(
    records: dg.DagsterInstance,
    *,
    by: tuple[int, str] | None = None,
    status: DagsterRunStatus = DagsterRunStatus.STARTED,
    tags_of: Callable[[str], dict[str, str]] = lambda _: {},
    **more: Any,
) -> str:
    run_id = str(uuid4())
    tags = tags_of(run_id)
    if by is not None:
        tags[machine_tag("process")] = f"{run_id} {by[0]} {by[1]}"
    run = dg.DagsterRun(job_name="__ASSET_JOB", run_id=run_id, status=status, tags=tags, **more)
    records.add_run(run)
    return run_id


def status_of(records: dg.DagsterInstance, run_id: str) -> DagsterRunStatus:
    return records.get_run_by_id(run_id).status


def holders(records: dg.DagsterInstance) -> set[str]:
    return {
        slot.run_id for slot in records.event_log_storage.get_concurrency_info(POOL).claimed_slots
    }


def test_a_run_whose_process_is_gone_fails_with_a_sentence_and_frees_its_pool(
    records: dg.DagsterInstance, gone: tuple[int, str]
) -> None:
    run_id = under_way(records, by=gone)
    records.event_log_storage.initialize_concurrency_limit_to_default(POOL)
    assert records.event_log_storage.claim_concurrency_slot(POOL, run_id, "write").is_claimed
    assert holders(records) == {run_id}
    assert close_dead_runs(records, dagster_is_down=False) == [run_id]
    assert status_of(records, run_id) is DagsterRunStatus.FAILURE
    assert holders(records) == set()
    said = f"process {gone[0]}, which executed the run, is gone"
    assert any(said in entry.message for entry in records.all_logs(run_id))


@pytest.mark.parametrize("dagster_is_down", [True, False])
def test_a_living_run_is_let_alone(records: dg.DagsterInstance, dagster_is_down: bool) -> None:
    run_id = under_way(records, tags_of=process_tag)
    assert close_dead_runs(records, dagster_is_down=dagster_is_down) == []
    assert status_of(records, run_id) is DagsterRunStatus.STARTED


def test_an_unclaimed_run_is_dead_only_if_dagster_is_down(records: dg.DagsterInstance) -> None:
    run_ids = {
        under_way(records, status=status)
        for status in (DagsterRunStatus.STARTING, DagsterRunStatus.STARTED)
    }
    assert close_dead_runs(records, dagster_is_down=False) == []
    assert set(close_dead_runs(records, dagster_is_down=True)) == run_ids


def test_a_queued_run_waits_for_the_next_daemon(records: dg.DagsterInstance) -> None:
    place = RemoteRepositoryOrigin(RegisteredCodeLocationOrigin("lakehouse"), "__repository__")
    origin = RemoteJobOrigin(place, "__ASSET_JOB")
    run_id = under_way(records, status=DagsterRunStatus.QUEUED, remote_job_origin=origin)
    assert close_dead_runs(records, dagster_is_down=True) == []
    assert status_of(records, run_id) is DagsterRunStatus.QUEUED


def test_a_canceling_run_is_canceled(records: dg.DagsterInstance, gone: tuple[int, str]) -> None:
    run_id = under_way(records, by=gone, status=DagsterRunStatus.CANCELING)
    close_dead_runs(records, dagster_is_down=True)
    assert status_of(records, run_id) is DagsterRunStatus.CANCELED


def test_a_repeated_run_has_no_process(records: dg.DagsterInstance, gone: tuple[int, str]) -> None:
    first = records.get_run_by_id(under_way(records, by=gone))
    assert recorded_process(first) is not None
    again = dg.DagsterRun(job_name=first.job_name, run_id=str(uuid4()), tags=first.tags)
    assert recorded_process(again) is None


def test_up_closes_them_in_a_process_of_its_own(
    home: Path,
    records: dg.DagsterInstance,
    gone: tuple[int, str],
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_id = under_way(records, by=gone)
    assert has_open_runs(home)
    close_before_up(home)
    assert status_of(records, run_id) is DagsterRunStatus.FAILURE
    assert f"run {run_id[:8]} was closed" in capfd.readouterr().out
    # Where all runs have ended, the next start does not import Dagster for nothing.
    assert not has_open_runs(home)


def test_records_that_cannot_be_read_may_hold_open_runs(home: Path) -> None:
    (home / "history").mkdir()
    (home / "history" / "runs.db").write_bytes(b"no database at all")
    assert has_open_runs(home)


def test_a_new_home_gets_its_files_before_the_processes_that_use_them(
    home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    close_before_up(home)
    assert capfd.readouterr().out == ""
    assert (home / "history" / "runs.db").is_file()
    assert (home / "schedules" / "schedules.db").is_file()
    assert not has_open_runs(home)


def test_launched_runs_are_closed_before_their_place_starts(records: dg.DagsterInstance) -> None:
    launched = under_way(records)
    by_command = under_way(records, tags_of=lambda _: {machine_tag("once"): "true"})
    assert close_launched_runs(records) == [launched]
    assert status_of(records, by_command) is DagsterRunStatus.STARTED


def test_of_records_that_machines_share_only_runs_of_this_machine_are_known_to_be_dead(
    gone: tuple[int, str],
) -> None:
    with dg.DagsterInstance.ephemeral() as shared:
        elsewhere = under_way(shared, by=gone)
        space = machine_tag("process_space")
        here = under_way(shared, by=gone, tags_of=lambda run: {space: f"{run} {process_space()}"})
        assert close_dead_runs(shared, dagster_is_down=True) == [here]
        assert status_of(shared, elsewhere) is DagsterRunStatus.STARTED
