"""Who may stop a server that several commands use."""

import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.cli.spark_server import wait_for_other_users
from lakehouse.runtime.processes import claim_lock, share_lock

USER = """
import sys
from pathlib import Path
from lakehouse.runtime.processes import share_lock
with share_lock(Path(sys.argv[1])):
    print("in use", flush=True)
    sys.stdin.readline()
"""


def test_a_server_is_stopped_after_the_last_command_that_uses_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "users.lock"
    command = [sys.executable, "-c", USER, str(path)]
    with share_lock(path) as users, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "in use\n"
        wait_for_other_users(users, seconds=0)
        first, second = capsys.readouterr().err.splitlines()
        assert first.startswith("another command uses this server; waiting")
        assert second.startswith("another command still uses this server")
        other.stdin.close()
        wait_for_other_users(users)
        assert "still" not in capsys.readouterr().err
        with claim_lock(path) as is_free:  # nobody begins to use a server that is being stopped
            assert not is_free
    with claim_lock(path) as is_free:
        assert is_free


def test_a_command_alone_waits_for_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with share_lock(tmp_path / "users.lock") as users:
        wait_for_other_users(users)
    assert capsys.readouterr().err == ""
