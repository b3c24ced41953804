"""A lease keeps a second process from the same work, on every home, and ends with its holder."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lakehouse.base.errors import Transient
from lakehouse.lake import lease as table_lock
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.lease import hold
from lakehouse_tests.conftest import own_settings, wait_until

OBJECT = "_lakehouse/locks/bronze/t.json"
HOLDER = """
import os
from pathlib import Path
from lakehouse.base.settings import parse_settings
from lakehouse.lake.lake import open_lake
from lakehouse.lake.lease import hold
with hold(open_lake(parse_settings(os.environ, base=Path.cwd())), None, "bronze/t", owner="write"):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return open_lake(own_settings(tmp_path / "home"))


def is_free(lake: Lake, key: str = "bronze/t") -> bool:
    try:
        with hold(lake, None, key, owner="compaction of bronze/t", wait_seconds=0):
            return True
    except Transient:
        return False


def test_a_held_table_is_held_for_every_home_and_names_its_holder(
    lake: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(own_settings(tmp_path / "other"), root=lake.settings.root)
    other = open_lake(settings)
    with hold(lake, None, "bronze/t", owner="write of bronze/t"):
        held = rf"^compaction: bronze/t has been locked for more than 0 s by process {os.getpid()} on .* \(write of bronze/t\)"
        with (
            pytest.raises(Transient, match=held),
            hold(other, None, "bronze/t", owner="compaction", wait_seconds=0),
        ):
            pass
        waiting = hold(other, None, "bronze/t", owner="vacuum", wait_seconds=1)
        with pytest.raises(Transient), waiting:
            pass
        assert is_free(other, "bronze/other")
    [waiting] = caplog.messages
    assert waiting.startswith(f"vacuum: bronze/t is locked by process {os.getpid()} on ")
    assert is_free(other)
    assert lake.store.stat(OBJECT) is None


def test_the_lease_of_a_killed_process_is_taken_at_once(lake: Lake) -> None:
    environment = {**os.environ, **lake.settings.as_environ()}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLDER], env=environment, **pipes) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not is_free(lake)
        holder.send_signal(signal.SIGKILL)
    assert is_free(lake)


def test_the_lease_of_another_machine_may_be_taken_once_it_has_ended(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its process is alive cannot be known here, so a lease that is renewed is respected."""
    elsewhere = '{"token": "x", "space": "elsewhere", "pid": 1, "born": "1", "host": "web2"}'
    for content in (elsewhere.encode(), b"damaged"):
        lake.store.put(OBJECT, content)
        assert not is_free(lake)
        ended = time.time() - table_lock.LEASE_SECONDS - 1
        os.utime(Path(lake.settings.root, OBJECT), (ended, ended))
        assert is_free(lake)
    monkeypatch.setattr(table_lock, "process_space", lambda: None)
    with hold(lake, None, "bronze/t", owner="write"):
        assert not is_free(lake)


def test_a_working_holder_renews_its_lease(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_lock, "LEASE_SECONDS", 6.0)
    with hold(lake, None, "bronze/t", owner="write"):
        first = lake.store.stat(OBJECT)
        assert first is not None

        def is_renewed() -> bool:
            lease = lake.store.stat(OBJECT)
            return lease is not None and lease.modified_ms > first.modified_ms

        wait_until("the lease is renewed", is_renewed)
        assert not is_free(lake)


def test_a_holder_that_was_paused_leaves_the_lease_of_its_successor(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hold(lake, None, "bronze/t", owner="write"):
        lake.store.put(OBJECT, b"of the successor")
        monkeypatch.setattr(table_lock, "LEASE_SECONDS", 0.0)
    assert lake.store.read(OBJECT) == b"of the successor"
