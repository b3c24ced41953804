"""Runs a command for as long as the process that wants it lives: `supervise` there, `python -m lakehouse.runtime.supervisor` in between.

1. The supervisor is a process of its own, in a session of its own: a Ctrl-C in the terminal does not reach it.
2. It starts the command and says its process id on standard output; the command writes to standard error.
3. Its standard input is a pipe whose other end belongs to whoever wants the command. When that closes, in order or because that
   process was killed, the command is interrupted as by Ctrl-C, waited for, and at last killed with every process of its group.
4. A supervisor that is killed itself takes the command with it (on Linux, where the kernel does that).
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

from lakehouse.runtime.processes import die_with_parent, group_members, wait_until

_COMMAND_SECONDS = 25.0
_REST_SECONDS = 5.0  # for what the command left behind: it was interrupted at the same time
_END_SECONDS = 45.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Supervised:
    """A command that runs under a supervisor of this process."""

    def __init__(self, supervisor: subprocess.Popen[bytes]) -> None:
        assert supervisor.stdout is not None
        self._supervisor = supervisor
        self.pid = int(supervisor.stdout.readline())

    @property
    def is_alive(self) -> bool:
        """Whether the command runs, or is being ended."""
        return self._supervisor.poll() is None

    def end(self) -> None:
        """Ends the command, if it runs; returns when nothing of it is left."""
        with self._supervisor as supervisor:  # closes its pipes
            assert supervisor.stdin is not None
            supervisor.stdin.close()
            try:
                supervisor.wait(timeout=_END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(supervisor.pid, signal.SIGKILL)


def supervise(
    command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], output: IO[bytes]
) -> Supervised:
    """The command, started under a supervisor; it ends with `Supervised.end`, or with this process."""
    words, pipe = [sys.executable, "-m", "lakehouse.runtime.supervisor", *command], subprocess.PIPE
    return Supervised(
        subprocess.Popen(
            words, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=output, start_new_session=True
        )
    )


def main(command: list[str]) -> int:
    """The command's own exit code if it ended by itself, 0 if it was ended. Must be called as the leader of a process group."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_as_child
    )
    print(child.pid, flush=True)
    while (code := child.poll()) is None:
        readable, _, _ = select.select([0], [], [], 0.2)
        if readable and os.read(0, 1024) == b"":
            _log("nobody wants the command any more; it is interrupted")
            os.killpg(os.getpgrp(), signal.SIGINT)  # all of them, as a terminal does
            wait_until(lambda: child.poll() is not None, _COMMAND_SECONDS)
            wait_until(lambda: group_members(os.getpgrp()) == [os.getpid()], _REST_SECONDS)
            code = 0
            break
    else:
        _log(
            f"the command ended by itself with exit code {code}"
            + (f" (signal {signal.Signals(-code).name})" if code < 0 else "")
        )
    for pid in group_members(os.getpgrp()):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return code


def _log(sentence: str) -> None:
    """Into the command's own log: who reads why it ended looks there."""
    print(f"supervisor: {sentence}", file=sys.stderr, flush=True)


def _as_child() -> None:
    die_with_parent()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
