import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lakehouse.assets.home import dagster_home
from lakehouse.base import processes
from lakehouse.base.errors import Refused
from lakehouse.base.installation import ROOT
from lakehouse.base.processes import group_members, hold_lock
from lakehouse.cli import services
from lakehouse.cli import up as foreground
from lakehouse.cli.up import run_all
from lakehouse.spark.server import server
from lakehouse_tests.conftest import free_port, own_settings, wait_until

# Hears no interrupt, and says so.
DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
# Starts such a child, and tells when it is interrupted itself; what it says is true from then on.
STUBBORN = f"""
import subprocess, sys, time
try:
    child = subprocess.Popen([sys.executable, "-c", {DEAF!r}], stdout=subprocess.PIPE)
    child.stdout.readline()
    print("begun", file=sys.stderr, flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", file=sys.stderr, flush=True)
"""

# Stands for a process of Dagster: says its name and pid, makes the socket of a code server, and waits.
PART = """
import os, sys, time
# At once, because three processes write to one pipe.
os.write(2, f"{sys.argv[1]} {os.getpid()}\\n".encode())
for socket in sys.argv[2:]:
    open(socket, "w").close()
time.sleep(600)
"""


@contextlib.contextmanager
def guard_of(program: str) -> "Iterator[subprocess.Popen[str]]":
    """A guard that has started this program; its output is on standard error."""
    main = "import sys; from lakehouse.base import processes as it; it._REST_SECONDS = 1.0; it.main(sys.argv[1:])"
    command = [sys.executable, "-c", main, sys.executable, "-c", program]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            yield started
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("name", "setting"), [("port", "LAKEHOUSE_PORT"), ("spark_port", "LAKEHOUSE_SPARK_PORT")]
)
def test_a_taken_port_is_refused_with_its_setting(name: str, setting: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = replace(own_settings(tmp_path), **{"port": free_port(), name: port})
        with pytest.raises(Refused, match=f"port {port}.* is in use.*{setting}"):
            run_all(settings)
    assert server.status(settings).condition == "stopped"


def test_a_lake_is_up_once(tmp_path: Path) -> None:
    settings = replace(own_settings(tmp_path), port=free_port())
    with hold_lock(settings.home / "up.lock"), pytest.raises(Refused, match="already running"):
        run_all(settings)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the Spark server and Dagster. Returns what becomes of both, in order."""
    order = list[str]()

    class Services:
        def __init__(self, *_: object) -> None:
            order.append("Dagster begins")

        def start(self, name: str) -> None:
            assert name in ("web server", "code server")

        def end(self) -> None:
            order.append("Dagster ends")

    @contextlib.contextmanager
    def supervised(*_: object, **__: object) -> Iterator[None]:
        order.append("server begins")
        yield
        order.append("server ends")

    monkeypatch.setattr(foreground, "DagsterServices", Services)
    monkeypatch.setattr(server, "supervised", supervised)
    return order


def test_dagster_ends_before_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = stand_in(monkeypatch)
    for quiet in ("_wait_until_up", "_watch"):
        monkeypatch.setattr(foreground, quiet, lambda *_: None)
    assert run_all(replace(own_settings(tmp_path), port=free_port())) == 1
    assert order == ["server begins", "Dagster begins", "Dagster ends", "server ends"]


def test_metrics_are_served_until_the_lake_stops_and_a_taken_port_only_costs_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr(foreground, "_wait_until_up", lambda *_: None)
    metrics_port, answers = free_port(), list[bool]()

    def watch(*_: object) -> None:
        address = f"http://127.0.0.1:{metrics_port}/metrics"
        wait_until(
            "the metrics",
            lambda: b"lakehouse_metrics_read_timestamp_seconds " in read_or_nothing(address),
        )
        answers.append(True)

    monkeypatch.setattr(foreground, "_watch", watch)
    settings = replace(own_settings(tmp_path), port=free_port(), metrics_port=metrics_port)
    assert run_all(settings) == 1
    said = capsys.readouterr().out.splitlines()
    assert f"metrics at http://127.0.0.1:{metrics_port}/metrics" in said
    assert answers == [True] and processes.port_is_free(metrics_port)
    monkeypatch.setattr(foreground, "_watch", lambda *_: None)
    with socket.create_server(("127.0.0.1", metrics_port)):
        assert run_all(settings) == 1
    said = capsys.readouterr().out.splitlines()
    taken = f"no metrics: port {metrics_port} is in use by another program. "
    assert [text for text in said if text.startswith(taken)]


def read_or_nothing(address: str) -> bytes:
    """What the address answers, or nothing as long as it does not."""
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=10) as answer:
        return answer.read()
    return b""


def test_an_interrupt_that_was_dropped_on_the_way_ends_the_lake_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dropped(_home: Path) -> None:
        # As a destructor does, or a module in C while it is imported.
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)

    stand_in(monkeypatch)
    monkeypatch.setattr(foreground, "close_dead_runs", dropped)
    assert run_all(replace(own_settings(tmp_path), port=free_port())) == 0


def test_dagster_keeps_all_in_its_home_and_has_the_project_s_settings(tmp_path: Path) -> None:
    project = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    home = dagster_home(own_settings(tmp_path / "it's a: #home", LAKEHOUSE_COMPACTION_SLOTS="3"))
    mine = yaml.safe_load((home / "dagster.yaml").read_text())
    assert mine.pop("compute_logs")["config"]["base_dir"] == str(home / "logs")
    assert mine.pop("event_log_storage")["config"]["base_dir"] == str(home / "history" / "runs")
    runs = mine["concurrency"].pop("runs")
    assert runs == {"max_concurrent_runs": 4}  # a writer beside the compactions that go at once
    del project["instance_class"], project["concurrency"]["runs"]
    assert mine == project


def test_a_dagster_home_of_one_s_own_is_used_as_it_is(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    settings = own_settings(tmp_path / "home", LAKEHOUSE_DAGSTER_HOME=str(theirs))
    theirs.mkdir()
    with pytest.raises(Refused, match=r"has no dagster\.yaml\. Either add one"):
        dagster_home(settings)
    (theirs / "dagster.yaml").write_text("storage: {}")
    assert dagster_home(settings) == theirs
    assert [file.name for file in theirs.iterdir()] == ["dagster.yaml"]
    assert (theirs / "dagster.yaml").read_text() == "storage: {}"


def test_a_closed_pipe_interrupts_the_command_and_ends_what_it_left_behind() -> None:
    with guard_of(STUBBORN) as guard:
        assert guard.stdin is not None and guard.stderr is not None
        assert guard.stderr.readline() == "begun\n"
        guard.stdin.close()
        said = {guard.stderr.readline() for _ in range(2)}
        ended = "guard: the starting process has ended; interrupting the command\n"
        assert said == {"interrupted\n", ended}
        wait_until(
            "the end of the stubborn child", lambda: group_members(guard.pid) in ([], [guard.pid])
        )
        assert guard.wait() == -signal.SIGKILL


def test_a_dead_code_server_is_started_again_and_without_the_page_everything_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "part.py").write_text(PART)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    commands = {
        "web server": ("part", "web"),
        "code server": ("part", "code", str(tmp_path / "code-server")),
        "daemon": ("part", "daemon"),
    }
    monkeypatch.setattr(services, "_RESTART_SECONDS", 0.1)
    monkeypatch.setattr(services, "_commands", lambda *_: commands)
    log = tmp_path / "dagster.log"
    said = list[str]()
    dagster = services.DagsterServices(own_settings(tmp_path), log, tmp_path)

    def pids(name: str) -> list[int]:
        return [int(pid) for pid in re.findall(rf"^{name} (\d+)$", log.read_text(), re.MULTILINE)]

    try:
        dagster.start("web server")
        dagster.start("code server")
        wait_until("the daemon", lambda: dagster.check(said.append) or pids("daemon"))
        os.kill(pids("code")[0], signal.SIGKILL)
        wait_until("a code server", lambda: dagster.check(said.append) or len(pids("code")) == 2)
        assert said == ["the code server ended by itself and is started again"]
        os.kill(pids("web")[0], signal.SIGKILL)
        wait_until("its end", lambda: dagster.check(said.append) == "web server")
    finally:
        dagster.end()
    all_pids = [*pids("web"), *pids("code"), *pids("daemon")]
    assert len(all_pids) == 4 and not any(map(processes.identify, all_pids))


def test_a_killed_guard_takes_its_command_with_it() -> None:
    with guard_of(
        "import sys, time; print('begun', file=sys.stderr, flush=True); time.sleep(600)"
    ) as guard:
        assert guard.stdout is not None and guard.stderr is not None
        command = int(guard.stdout.readline())
        assert guard.stderr.readline() == "begun\n"
        assert group_members(guard.pid) == sorted([guard.pid, command])
        os.kill(guard.pid, signal.SIGKILL)
        guard.wait()
        wait_until("the end of the command", lambda: group_members(guard.pid) == [], seconds=60)


def test_a_log_that_grew_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_MOST_LOG_BYTES", 20)
    log, aside = tmp_path / "server.log", tmp_path / "server.log.1"
    assert not processes.bound_log(log)
    with log.open("ab", buffering=0) as writer:
        writer.write(b"the first line\n")
        assert not processes.bound_log(log)
        writer.write(b"the second line\n")
        assert processes.bound_log(log)
        writer.write(b"the third line\n")
    assert aside.read_text() == "the first line\nthe second line\n"
    assert log.read_text() == "the third line\n"
