import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lakehouse.core.errors import Refused
from lakehouse.core.settings import parse_settings
from lakehouse.runtime import foreground, server
from lakehouse.runtime.dagster_home import dagster_home
from lakehouse.runtime.foreground import run_all
from lakehouse.runtime.processes import claim_lock, group_members
from lakehouse.runtime.project import ROOT
from lakehouse_tests.conftest import free_port, own_settings, wait_until

# Hears no interrupt, and says so.
DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
# Starts such a child, and tells when it is interrupted itself; what it says is true from then on.
STUBBORN = f"""
import subprocess, sys, time
try:
    child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], stdout=subprocess.PIPE)
    child.stdout.readline()
    print("begun", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def start_warden(program: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "lakehouse.runtime.warden", sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(("name", "setting"), [("port", "LAKEHOUSE_PORT"), ("spark_port", "LAKEHOUSE_SPARK_PORT")])
def test_a_taken_port_is_refused_with_its_setting_before_anything_starts(name: str, setting: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = replace(own_settings(tmp_path), **{"port": free_port(), name: port})
        with pytest.raises(Refused, match=f"port {port}.* is taken.*{setting}"):
            run_all(settings, print)
    assert server.status(settings).condition == "stopped"


def test_a_lake_is_up_once(tmp_path: Path) -> None:
    settings = replace(own_settings(tmp_path), port=free_port())
    with claim_lock(settings.home / "up.lock") as is_ours:
        assert is_ours
        with pytest.raises(Refused, match="up already"):
            run_all(settings, print)


def test_dagster_ends_before_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()

    @contextlib.contextmanager
    def part(name: str) -> Iterator[None]:
        order.append(f"{name} begins")
        yield
        order.append(f"{name} ends")

    monkeypatch.setattr(foreground, "_spark", lambda *_: part("server"))
    monkeypatch.setattr(foreground, "_dagster", lambda *_: part("Dagster"))
    monkeypatch.setattr(foreground, "_show", lambda *_: None)
    assert run_all(replace(own_settings(tmp_path), port=free_port()), print) == 1
    assert order == ["server begins", "Dagster begins", "Dagster ends", "server ends"]


def test_dagster_keeps_everything_in_the_home_of_its_lake_and_is_told_the_rest_by_the_project(tmp_path: Path) -> None:
    project = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    home = dagster_home(own_settings(tmp_path / "it's a: #home"))
    mine = yaml.safe_load((home / "dagster.yaml").read_text())
    places = [
        (config["storage"]["sqlite"], config["compute_logs"]["config"], config["local_artifact_storage"]["config"])
        for config in (project, mine)
    ]
    assert [place.pop("base_dir") for place in places[0]] == [".lakehouse/dagster", ".lakehouse/dagster/logs", ".lakehouse/dagster"]
    assert [place.pop("base_dir") for place in places[1]] == [str(home), f"{home}/logs", str(home)]
    assert mine == project


def test_dagster_runs_one_writer_beside_the_compactions_that_may_go_at_once(tmp_path: Path) -> None:
    home = dagster_home(own_settings(tmp_path, LAKEHOUSE_COMPACTION_SLOTS="3"))
    assert yaml.safe_load((home / "dagster.yaml").read_text())["concurrency"]["runs"] == {"max_concurrent_runs": 4}


def test_settings_handed_to_another_process_are_the_same_wherever_it_starts(tmp_path: Path) -> None:
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT="s3://bucket/prefix", LAKEHOUSE_REPLAY_START="2013-07-04")
    assert parse_settings(settings.as_environ(), base=Path("/elsewhere")) == settings


def test_a_closed_pipe_interrupts_the_command_and_ends_what_it_left_behind() -> None:
    warden = start_warden(STUBBORN)
    assert warden.stdin is not None
    assert warden.stdout is not None
    assert warden.stdout.readline() == "begun\n"
    warden.stdin.close()
    assert warden.stdout.readline() == "interrupted\n"
    wait_until("the end of the stubborn child", lambda: group_members(warden.pid) in ([], [warden.pid]))
    assert warden.wait() == 0
    warden.stdout.close()


def test_a_command_that_ends_by_itself_is_told_by_its_exit_code() -> None:
    warden = start_warden("import sys; sys.exit(7)")
    assert warden.wait() == 7
    warden.communicate()


def test_a_killed_warden_takes_its_command_with_it() -> None:
    warden = start_warden("import time; print('begun', flush=True); time.sleep(600)")
    assert warden.stdout is not None
    assert warden.stdout.readline() == "begun\n"
    os.kill(warden.pid, signal.SIGKILL)
    warden.wait()
    try:
        wait_until("the end of the command", lambda: group_members(warden.pid) == [], seconds=60)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(warden.pid, signal.SIGKILL)
        for pipe in (warden.stdin, warden.stdout):
            assert pipe is not None
            pipe.close()
