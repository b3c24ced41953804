"""Who may stop a server that several commands use."""

import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.base.processes import hold_lock
from lakehouse.cli.server_command import wait_for_other_users

USER = """
import sys
from pathlib import Path
from lakehouse.base.processes import hold_lock
with hold_lock(Path(sys.argv[1]), shared=True):
    print("in use", flush=True)
    sys.stdin.readline()
"""


def test_a_server_in_use_is_not_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "users.lock"
    with hold_lock(path, shared=True) as users:
        wait_for_other_users(users)  # nobody else
    assert capsys.readouterr().err == ""
    command = [sys.executable, "-c", USER, str(path)]
    with (
        hold_lock(path, shared=True) as users,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
    ):
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == "in use\n"
        wait_for_other_users(users, seconds=0)
        first, second = capsys.readouterr().err.splitlines()
        assert first.startswith("another command uses this server; waiting")
        assert second.startswith("another command still uses this server")
        other.stdin.close()
        wait_for_other_users(users)
        assert "still" not in capsys.readouterr().err
        # Nobody begins to use a server that is being stopped.
        with pytest.raises(BlockingIOError), hold_lock(path, shared=True, seconds=0):
            pass
    with hold_lock(path, seconds=0):
        pass
