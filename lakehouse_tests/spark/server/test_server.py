import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.processes import identify
from lakehouse.base.settings import Settings
from lakehouse.spark import errors
from lakehouse.spark import session as open_session
from lakehouse.spark.server import jars, server
from lakehouse.spark.server.conf import TOKEN_VARIABLE
from lakehouse_tests.conftest import own_settings, wait_until

# A command that finds no server.
SUPERVISOR = """
import os, time
from pathlib import Path
from lakehouse.cli.server_command import driver_for_command
from lakehouse.base.settings import parse_settings
with driver_for_command(parse_settings(os.environ, base=Path.cwd())):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A server started as on a machine without Java, in a home with a space."""
    settings = own_settings(tmp_path_factory.mktemp("started") / "home with a space")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "find_java", jars.java_from_wheel)
        server.start(settings)
    yield settings
    server.stop(settings)


@pytest.mark.spark
def test_a_started_server_is_running_and_a_second_start_gives_the_same(started: Settings) -> None:
    state = server.status(started)
    assert state.condition == "running"
    assert server.start(started) == state


@pytest.mark.spark
def test_token_pid_file_and_confs_are_for_their_owner_only(started: Settings) -> None:
    modes = {
        name: stat.S_IMODE((server.folder(started) / name).stat().st_mode)
        for name in ("token", "pid", "conf/spark-defaults.conf")
    }
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.spark
def test_the_token_is_in_no_command_line_conf_or_log(started: Settings) -> None:
    token = server.read_token(started)
    assert token
    shown = subprocess.run(
        ["ps", "-ww", "-o", "args=", "-p", str(server.status(started).pid)],
        capture_output=True,
        text=True,
        check=True,
    )
    written = [
        path.read_text()
        for path in server.folder(started).rglob("*")
        if path.suffix in (".conf", ".properties", ".log")
    ]
    assert [text for text in (shown.stdout, *written) if token in text] == []


@pytest.mark.spark
def test_a_wrong_token_is_refused(started: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.connect.client import SparkConnectClient

    monkeypatch.setenv(TOKEN_VARIABLE, "wrong")
    client = SparkConnectClient(f"sc://localhost:{started.spark_port}")
    with pytest.raises(Refused, match="token"), errors.translated():
        client.get_configs("spark.sql.session.timeZone")
    client.close()


@pytest.mark.spark
def test_a_server_listens_on_loopback_only(started: Settings) -> None:
    conf = (server.folder(started) / "conf" / "spark-defaults.conf").read_text().splitlines()
    bound = {"spark.connect.grpc.binding.address", "spark.driver.bindAddress"}
    assert {*(f"{name} 127.0.0.1" for name in bound), "spark.ui.enabled false"} <= {*conf}


@pytest.mark.spark
def test_a_server_started_for_the_disk_is_refused_to_a_lake_on_s3(
    started: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    moved = replace(started, root="s3://bucket/lake")
    words = r"was started for a lake on disk, .* name S3 at http://127.0.0.1:9, region eu-central-1. Stop the server: use lakehouse server stop"
    for use in (server.start, open_session.connect):
        with pytest.raises(Refused, match=words):
            use(moved)


@pytest.mark.spark
def test_what_is_left_after_a_kill_is_cleared(started: Settings) -> None:
    state = server.status(started)
    assert state.pid is not None
    os.kill(state.pid, signal.SIGKILL)
    wait_until("the server's death", lambda: server.status(started).condition == "died")
    with pytest.raises(Transient, match="lakehouse server start"):
        open_session.connect(started)
    assert server.stop(started) is False
    left = {path.name for path in server.folder(started).iterdir()}
    assert left <= {"conf", "lock", "server.log", "server.log.1", "warehouse"}
    assert server.status(started).condition == "stopped"


def test_a_port_of_somebody_else_is_refused_by_number_and_setting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = replace(own_settings(tmp_path), spark_port=other.getsockname()[1])
        message = (
            f"port {settings.spark_port}, .* is in use by another program. Set LAKEHOUSE_SPARK_PORT"
        )
        with pytest.raises(Refused, match=message):
            server.start(settings)
    assert server.status(settings).condition == "stopped"


def test_a_pid_of_another_process_is_not_the_server_and_is_not_stopped(tmp_path: Path) -> None:
    settings = own_settings(tmp_path)
    with waiting_process() as bystander:
        kept(settings, process={"pid": bystander.pid, "born": "long ago"})
        assert server.status(settings).condition == "died"
        assert server.stop(settings) is False
        bystander.communicate(b"\n")
        assert bystander.returncode == 0


def kept(settings: Settings, **more: object) -> Settings:
    """A lake whose server is this very process, as its pid file says it."""
    server.folder(settings).mkdir(parents=True)
    me = asdict(identify(os.getpid()))  # type: ignore[arg-type]
    (server.folder(settings) / "pid").write_text(
        json.dumps({"process": me, "keeper": None, "port": settings.spark_port, **more})
    )
    return settings


def waiting_process() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def supervised(settings: Settings, jvm: "subprocess.Popen[bytes]") -> Settings:
    """A lake whose server is another process, which this one supervises."""
    process, keeper = (asdict(identify(pid)) for pid in (jvm.pid, os.getpid()))  # type: ignore[arg-type]
    return kept(settings, process=process, keeper=keeper)


def test_a_server_that_another_process_supervises_is_not_stopped(tmp_path: Path) -> None:
    with waiting_process() as jvm:
        settings = supervised(own_settings(tmp_path), jvm)
        message = r"`make run`, `dagster dev` or a command\) supervises the Spark Connect server"
        with pytest.raises(Refused, match=message):
            server.stop(settings)
        assert jvm.poll() is None
        jvm.kill()


def test_a_dead_server_is_left_to_its_supervisor(tmp_path: Path) -> None:
    with waiting_process() as jvm:
        settings = supervised(own_settings(tmp_path), jvm)
        jvm.kill()
    with pytest.raises(Transient, match=f"process {os.getpid()} restarts the Spark Connect server"):
        server.start(settings)


def test_a_server_at_another_port_or_told_of_another_storage_does_not_serve(tmp_path: Path) -> None:
    its = kept(own_settings(tmp_path), storage="a lake on disk")
    message = f"runs at port {its.spark_port}, but LAKEHOUSE_SPARK_PORT is 1"
    with pytest.raises(Refused, match=message):
        server.check_serves(replace(its, spark_port=1), server.status(its))
    moved = replace(its, root="s3://bucket/lake")
    with pytest.raises(Refused, match=r"was started for a lake on disk, .* name S3 at "):
        server.check_serves(moved, server.status(moved))


def test_a_process_that_ended_and_was_not_waited_for_is_not_alive() -> None:
    child = waiting_process()
    process = identify(child.pid)
    assert process is not None and process.is_alive
    child.kill()
    wait_until("the child's end", lambda: not process.is_alive)


@pytest.mark.spark
def test_a_jvm_that_cannot_start_is_broken_with_the_end_of_its_log(tmp_path: Path) -> None:
    settings = own_settings(tmp_path, LAKEHOUSE_SPARK_MEMORY="99999999g")
    with pytest.raises(Broken, match=r"ended while it started(.|\n)*initialization of VM"):
        server.start(settings)
    assert server.status(settings).condition == "stopped"
    # Also where Dagster starts at the same time.
    with (
        pytest.raises(Broken, match="ended while it started"),
        server.supervised(settings, waits=False),
    ):
        server.wait_until_running(settings)
    assert server.status(settings).condition == "stopped"


@pytest.mark.long
@pytest.mark.spark
def test_a_command_brings_a_server_and_leaves_none_when_it_is_killed(tmp_path: Path) -> None:
    settings = own_settings(tmp_path)
    environment = {**os.environ, **settings.as_environ()}
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR], env=environment, stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "up\n"
        state = server.status(settings)
        supervisor.kill()
    left = [process for process in (state.process, state.supervisor) if process is not None]
    assert len(left) == 2
    wait_until("the end of the server", lambda: not any(process.is_alive for process in left))
    assert server.status(settings).condition == "stopped"
