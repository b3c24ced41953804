"""This machine's processes, ports, locks, log files and interrupts."""

import contextlib
import ctypes
import fcntl
import math
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

import psutil

from lakehouse.base.errors import LakehouseError

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
_MOST_LOG_BYTES = 10 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, identified by its pid and start time, because pids are reused."""

    pid: int
    born: str

    @property
    def is_alive(self) -> bool:
        """Whether this process is still running. A zombie is not."""
        # If the process is a zombie child of ours, this removes it.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
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
        time.sleep(0.05)


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
