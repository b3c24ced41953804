"""This machine's processes, ports, locks, log files and interrupts.

A command can be bound to this process: it ends with this process, even if this process is killed.

1. `BoundProcess` starts a guard, `python -m lakehouse.base.processes`, in a separate session,
   so that Ctrl-C in the terminal does not reach it.
2. The guard starts the command and prints the command's process id. All output of the command goes
   to the guard's standard error, which is the log file.
3. The guard's standard input is a pipe from this process. When the pipe closes, the guard
   interrupts the command as Ctrl-C does, waits, and finally kills its process group.
4. On Linux, the command also dies if the guard is killed.
"""

import contextlib
import ctypes
import fcntl
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from lakehouse.base.errors import LakehouseError
from lakehouse.base.frozen import frozen

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
_MOST_LOG_BYTES = 10 * 2**20
# How long the guard waits for the interrupted command, and then for the rest of its group.
_COMMAND_SECONDS = 25.0
_REST_SECONDS = 5.0
# How long `BoundProcess.end` waits for the guard.
_END_SECONDS = 45.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@frozen
class Process:
    """A process, identified by its pid and start time, because pids are reused."""

    pid: int
    born: str

    @property
    def is_alive(self) -> bool:
        """Whether this process is still running. A zombie is not."""
        return _born(self.pid) == self.born

    def end(self, *, seconds: float) -> None:
        """Terminates the process, kills it after `seconds`, and waits for its end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.is_alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)
                wait_until(lambda: not self.is_alive, seconds)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits until `condition()` is true, at most `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)  # such a condition can only be polled


def identify(pid: int) -> Process | None:
    """The process that has this pid now, if any."""
    born = _born(pid)
    return None if born is None else Process(pid=pid, born=born)


def process_space() -> str | None:
    """The boot, pid namespace and user within which a pid is valid; `None` except on Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return None
    return f"{boot} {namespace} {os.getuid()}"


def group_members(group: int) -> list[int]:
    """The pids of a process group's living processes."""
    members: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() not in _ENDED:
                members.append(process.pid)
    return sorted(members)


def _born(pid: int) -> str | None:
    """The start time of a process, only for comparison; `None` if it has ended or is a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() in _ENDED:
            return None
        if sys.platform == "linux":
            # Field 22, ticks since boot. psutil's create_time() changes when the clock is set.
            # Source: proc(5)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
        return time.ctime(process.create_time())
    except (psutil.NoSuchProcess, OSError):
        return None


def bound_log(path: Path) -> bool:
    """Rotates a log of more than 10 MiB; returns whether the log was rotated.

    The file is copied and then truncated, because its writer keeps the file open. Lines that are
    written between these two steps are lost.
    """
    if not path.exists() or path.stat().st_size <= _MOST_LOG_BYTES:
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def die_with_parent() -> None:
    """Makes the kernel kill this process when its parent dies. Linux only; call before exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def port_answers(port: int, host: str = "127.0.0.1", *, seconds: float = 1.0) -> bool:
    """Whether the port accepts connections."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=seconds):
        return True
    return False


def port_is_free(port: int) -> bool:
    """Whether this process could listen on this port of the loopback address."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


@contextlib.contextmanager
def hold_lock(
    path: Path,
    *,
    shared: bool = False,
    seconds: float = math.inf,
    refusal: LakehouseError | None = None,
) -> Generator[IO[str]]:
    """Holds a lock file, exclusively or shared; the kernel frees it when this process dies.

    Raises:
        BlockingIOError: as in `take_lock`. If `refusal` is given, it is raised instead.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            take_lock(file, shared=shared, seconds=seconds)
        except BlockingIOError as error:
            if refusal is None:
                raise
            raise refusal from error
        yield file


def take_lock(file: IO[str], *, shared: bool = False, seconds: float = math.inf) -> None:
    """Locks an open file until the file is closed. A lock that the file already has is converted.

    Raises:
        BlockingIOError: another process holds the lock longer than `seconds`.
    """
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.05)  # flock has no timeout


@contextmanager
def late_interrupts() -> Generator[None]:
    """Delays SIGINT and SIGTERM until the end of the block. Use it for code that drops exceptions.

    At the end of the block, only the first signal is raised. In other threads than the main thread,
    nothing is delayed.

    Cython modules (pandas, pyarrow, numpy) drop exceptions that are raised during their import, and
    Python drops exceptions in `__del__`. In both cases, the command would continue after Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python raises interrupts in the main thread only
        return
    received: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    previous_actions = {number: signal.signal(number, remember) for number in numbers}
    try:
        yield
    finally:
        for number, action in previous_actions.items():
            signal.signal(number, action)
        for number in received[:1]:
            signal.raise_signal(number)


class BoundProcess:
    """A command that ends with this process, or earlier by `end`.

    The output of the command and of its guard goes to `output`.
    """

    def __init__(
        self, command: Sequence[str | Path], *, cwd: Path, env: Mapping[str, str], output: IO[bytes]
    ) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "lakehouse.base.processes", *command],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
        )
        assert self._guard.stdout is not None
        self.pid = int(self._guard.stdout.readline())

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


def main(command: list[str]) -> None:
    """Starts and guards the command. At the end, kills its own process group.

    Must run as the leader of the group.
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
    else:
        by_signal = f" (signal {signal.Signals(-code).name})" if code < 0 else ""
        _log(f"the command ended by itself with exit code {code}{by_signal}")
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _log(sentence: str) -> None:
    """Writes to the command's log, so that the log shows why the command ended."""
    print(f"guard: {sentence}", file=sys.stderr, flush=True)


def _as_child() -> None:
    die_with_parent()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    main(sys.argv[1:])
