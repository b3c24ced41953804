"""`python -m lakehouse.engine.warden COMMAND…`: runs a command for as long as standard input is open.

The other end of standard input belongs to whoever started this. When it closes, in order or because that process was killed, the
command is interrupted as by Ctrl-C, waited for, and at last killed with every process that it left in its group.
"""

import os
import select
import signal
import subprocess
import sys
import time

from lakehouse.engine.process import die_with_parent, group_members

_END_SECONDS = 25.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(command: list[str]) -> int:
    """The command's own exit code if it ended by itself, 0 if it was ended. Must be called as the leader of a process group."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_as_child)
    while child.poll() is None:
        readable, _, _ = select.select([0], [], [], 0.2)
        if readable and os.read(0, 1024) == b"":
            os.killpg(os.getpgrp(), signal.SIGINT)  # all of them, as a terminal does
            _wait_for_the_others(child)
            break
    for pid in group_members(os.getpgrp()):
        if pid != os.getpid():
            os.kill(pid, signal.SIGKILL)
    return child.poll() or 0


def _as_child() -> None:
    die_with_parent()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def _wait_for_the_others(child: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _END_SECONDS
    while child.poll() is None or group_members(os.getpgrp()) != [os.getpid()]:
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)  # between two looks at other processes; nothing is assumed of the time that passes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
