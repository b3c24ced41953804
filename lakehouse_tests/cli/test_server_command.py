"""Who may stop a server that several commands use."""

import subprocess
import sys
from pathlib import Path
from threading import Thread

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
        waiting = Thread(target=wait_for_other_users, args=(users,))
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        other.stdin.close()
        waiting.join()
        expected = "another command uses this server; waiting for it to end\n"
        assert capsys.readouterr().err == expected
        # Nobody begins to use a server that is being stopped.
        with pytest.raises(BlockingIOError), hold_lock(path, shared=True, seconds=0):
            pass
    with hold_lock(path, seconds=0):
        pass
