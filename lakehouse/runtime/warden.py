"""`python -m lakehouse.runtime.warden COMMAND…`: runs a command for as long as standard input is open.

The other end of standard input belongs to whoever started this. When it closes, in order or because that process was killed, the
command is interrupted as by Ctrl-C, waited for, and at last killed with every process that it left in its group.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from lakehouse.runtime.processes import die_with_parent, group_members

_COMMAND_SECONDS = 25.0
_REST_SECONDS = 5.0  # for what the command left behind: it was interrupted at the same time
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(command: list[str]) -> int:
    """The command's own exit code if it ended by itself, 0 if it was ended. Must be called as the leader of a process group."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_as_child)
    while (code := child.poll()) is None:
        readable, _, _ = select.select([0], [], [], 0.2)
        if readable and os.read(0, 1024) == b"":
            os.killpg(os.getpgrp(), signal.SIGINT)  # all of them, as a terminal does
            _wait_until(lambda: child.poll() is not None, _COMMAND_SECONDS)
            _wait_until(lambda: group_members(os.getpgrp()) == [os.getpid()], _REST_SECONDS)
            code = 0
            break
    for pid in group_members(os.getpgrp()):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return code


def _as_child() -> None:
    die_with_parent()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _wait_until(holds: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)  # between two looks at other processes; nothing is assumed of the time that passes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
