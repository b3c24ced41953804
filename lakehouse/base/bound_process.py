"""Starts a command that ends with this process, even if this process is killed.

1. `start_bound` starts a guard, `python -m lakehouse.base.bound_process`, in a separate session,
   so that Ctrl-C in the terminal does not reach it.
2. The guard starts the command and prints the command's process id. All output of the command goes
   to the guard's standard error, which is the log file.
3. The guard's standard input is a pipe from this process. When the pipe closes, the guard
   interrupts the command as Ctrl-C does, waits, and finally kills the other processes of its group.
4. On Linux, the command also dies if the guard is killed.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from lakehouse.base.processes import die_with_parent, group_members, wait_until

# How long the guard waits for the interrupted command, and then for the rest of its group.
_COMMAND_SECONDS = 25.0
_REST_SECONDS = 5.0
# How long `BoundProcess.end` waits for the guard.
_END_SECONDS = 45.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BoundProcess:
    """A command that ends with this process."""

    def __init__(self, guard: subprocess.Popen[bytes]) -> None:
        assert guard.stdout is not None
        self._guard = guard
        self.pid = int(guard.stdout.readline())

    @property
    def is_alive(self) -> bool:
        """Whether the command is running, or its guard is still ending it."""
        return self._guard.poll() is None

    def end(self) -> None:
        """Ends the command and all processes of its group, and waits for their end."""
        with self._guard as guard:  # closes its pipes
            assert guard.stdin is not None
            guard.stdin.close()
            try:
                guard.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(guard.pid, signal.SIGKILL)


def start_bound(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], output: IO[bytes]
) -> BoundProcess:
    """Starts a command that `BoundProcess.end`, or the end of this process, ends.

    The output of the command and of its guard goes to `output`.
    """
    guard = subprocess.Popen(
        [sys.executable, "-m", "lakehouse.base.bound_process", *command],
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        start_new_session=True,
    )
    return BoundProcess(guard)


def main(command: list[str]) -> int:
    """Starts and guards the command; returns its exit code if it ended by itself, otherwise 0.

    Must run as the leader of a process group, whose other processes it kills before it returns.
    """
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_as_child
    )
    print(child.pid, flush=True)
    while (code := child.poll()) is None:
        readable, _, _ = select.select([0], [], [], 0.2)
        if readable and os.read(0, 1024) == b"":  # standard input was closed
            break
    if code is None:
        _log("the starting process has ended; interrupting the command")
        os.killpg(os.getpgrp(), signal.SIGINT)  # the whole group, as a terminal does
        wait_until(lambda: child.poll() is not None, _COMMAND_SECONDS)
        wait_until(lambda: group_members(os.getpgrp()) == [os.getpid()], _REST_SECONDS)
        code = 0
    else:
        by_signal = f" (signal {signal.Signals(-code).name})" if code < 0 else ""
        _log(f"the command ended by itself with exit code {code}{by_signal}")
    for pid in group_members(os.getpgrp()):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return code


def _log(sentence: str) -> None:
    """Writes to the command's log, so that the log shows why the command ended."""
    print(f"guard: {sentence}", file=sys.stderr, flush=True)


def _as_child() -> None:
    die_with_parent()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
