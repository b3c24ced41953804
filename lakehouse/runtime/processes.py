"""Processes and ports of this machine: who is alive, who is who, what is taken."""

import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # Source: linux/prctl.h


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
        self._signal(signal.SIGTERM)
        if not self._gone_within(seconds):
            self._signal(signal.SIGKILL)
            self._gone_within(seconds)

    def _signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)  # between two looks at another process; nothing is assumed of the time that passes
        return True


def identify(pid: int) -> Process | None:
    """The process that has this pid now, or `None`."""
    born = _born(pid)
    return None if born is None else Process(pid=pid, born=born)


def group_members(group: int) -> list[int]:
    """The living processes of a process group, by their pids."""
    if sys.platform == "linux":
        pids = [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        fields = {pid: _stat(pid) for pid in pids}
        return sorted(pid for pid, stat in fields.items() if stat and stat[0] not in "ZX" and int(stat[2]) == group)
    shown = subprocess.run(["ps", "-A", "-o", "pid=,pgid=,stat="], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in shown.splitlines())
    return sorted(int(pid) for pid, pgid, stat in rows if int(pgid) == group and not stat.startswith("Z"))


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the third, the state, on; `None` if there is no such process. Source: proc(5)"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None


def _born(pid: int) -> str | None:
    """When the process started, in a form that only equality is asked of; `None` if it is gone or a zombie."""
    if sys.platform == "linux":
        stat = _stat(pid)
        return None if stat is None or stat[0] in "ZX" else stat[19]  # field 22, starttime
    shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.split(None, 1)
    return shown[1].strip() if len(shown) == 2 and not shown[0].startswith("Z") else None


def die_with_parent() -> None:
    """To be called in a child before it executes its program: it is killed when its parent dies, however that dies. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def port_answers(port: int, host: str = "127.0.0.1", *, seconds: float = 1.0) -> bool:
    """Whether somebody accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=seconds):
            return True
    except OSError:
        return False


def port_is_free(port: int) -> bool:
    """Whether we could listen on that port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


@contextlib.contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Waits for, and holds, a lock that the kernel frees when this process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def share_lock(path: Path) -> Iterator[IO[str]]:
    """Holds such a lock together with all others who share it; waits for one who holds it alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield file


def make_it_ours(shared: IO[str], *, seconds: float, say: Callable[[], None] = lambda: None) -> bool:
    """Waits until nobody else shares the lock, and holds it alone from then on; `False` after `seconds`. `say` tells of a wait."""
    deadline, told = time.monotonic() + seconds, False
    while True:
        try:
            fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not told:
                say()
                told = True
        else:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)  # between two looks at other processes; nothing is assumed of the time that passes


@contextlib.contextmanager
def claim_lock(path: Path) -> Iterator[bool]:
    """Holds such a lock if nobody else does; whether it is ours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
