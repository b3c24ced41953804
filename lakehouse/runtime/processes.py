"""Processes and ports of this machine: who is alive, who is who, what is taken."""

import contextlib
import ctypes
import fcntl
import math
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from lakehouse.core.errors import LakehouseError

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h
_MOST_LOG_BYTES = 10 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process for ever: the pid alone may come back as somebody else's."""

    pid: int
    born: str

    @property
    def is_alive(self) -> bool:
        """Whether this very process still runs; one that ended and was not yet waited for does not."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)
        return _born(self.pid) == self.born

    def end(self, *, seconds: float) -> None:
        """Asks it to end, and kills it after `seconds`; returns when it is gone."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.is_alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, number)
                wait_until(lambda: not self.is_alive, seconds)


def wait_until(holds: Callable[[], bool], seconds: float) -> None:
    """Returns when this holds, or after so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(
            0.05
        )  # between two looks at another process; nothing is assumed of the time that passes


def identify(pid: int) -> Process | None:
    """The process that has this pid now, or `None`."""
    born = _born(pid)
    return None if born is None else Process(pid=pid, born=born)


def process_space() -> str | None:
    """The place in which a pid names one process: the machine's boot, its pid namespace and the user. Linux only."""
    try:
        boot, namespace = (
            Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            Path("/proc/self/ns/pid").readlink(),
        )
    except OSError:
        return None
    return f"{boot} {namespace} {os.getuid()}"


def group_members(group: int) -> list[int]:
    """The living processes of a process group, by their pids."""
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() not in _ENDED:
                found.append(process.pid)
    return sorted(found)


def _born(pid: int) -> str | None:
    """The start of the process, in a form that only equality is asked of; `None` if it is gone or a zombie."""
    try:
        process = psutil.Process(pid)
        if process.status() in _ENDED:
            return None
        if sys.platform == "linux":
            # Field 22, the kernel's ticks since the boot: psutil's time of birth moves when the machine's clock is set. Source: proc(5)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[19]
        return time.ctime(process.create_time())
    except (psutil.NoSuchProcess, OSError):
        return None


def bound_log(path: Path) -> bool:
    """Sets a log of more than 10 MiB aside, in the place of the one before; whether it did.

    The writer goes on: it appends, so that its next line is the first of the emptied file. Lines that it writes in between are lost.
    """
    if not path.exists() or path.stat().st_size <= _MOST_LOG_BYTES:
        return False
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def die_with_parent() -> None:
    """To be called in a child before it executes its program: it is killed when its parent dies, however that dies. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def port_answers(port: int, host: str = "127.0.0.1", *, seconds: float = 1.0) -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=seconds):
        return True
    return False


def port_is_free(port: int) -> bool:
    """Whether we could listen on that port of the loopback address."""
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
) -> Iterator[IO[str]]:
    """Holds a lock, alone or together with all others who share it; the kernel frees it when this process dies.

    Raises:
        BlockingIOError: as for `take_lock`; or the `refusal` in its place.
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
    """Takes the lock of an open file, also in place of a shared one that it holds, until the file is closed.

    Raises:
        BlockingIOError: another process holds it for longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(
            0.05
        )  # between two tries of a lock whose wait must be bounded, which flock itself cannot
