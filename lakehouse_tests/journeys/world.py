"""A whole lakehouse as a person starts it, in processes of its own."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakehouse.base.installation import ROOT
from lakehouse_tests.conftest import free_port, wait_until
from lakehouse_tests.journeys.page import Page
from lakehouse_tests.support.terminal import Terminal


def wait_for(what: str, holds: Callable[[], object]) -> None:
    """As `wait_until`, for what a whole lakehouse comes to by itself; `holds()` asks its page."""
    wait_until(what, holds, seconds=900, every=1)


class World:
    """`lakehouse up`, or a plain `dagster dev`, with a home of its own; leaves nothing behind."""

    def __init__(self, home: Path, *, dagster_dev: bool = False, **settings: str) -> None:
        self.home = home
        self.port = free_port()
        self._starts = ["lakehouse", "up"]
        if dagster_dev:
            self._starts = ["dagster", "dev", "-h", "127.0.0.1", "-p", str(self.port)]
        own = {
            "LAKEHOUSE_HOME": str(home),
            "LAKEHOUSE_PORT": str(self.port),
            "LAKEHOUSE_SPARK_PORT": str(free_port()),
            "LAKEHOUSE_SPARK_MEMORY": "1g",
            "LAKEHOUSE_METRICS_PORT": str(free_port()),
            "LAKEHOUSE_TABLES": "lakehouse.tables",
            "LAKEHOUSE_REPLAY": "on",
            **settings,
        }
        self.environment = {**os.environ, **own}
        self._terminal = Terminal(home, **own)
        self.page = Page(f"http://127.0.0.1:{self.port}")
        self.process: subprocess.Popen[bytes] | None = None
        self.answered = math.inf  # when the page answered first, on the monotonic clock

    def ask(self, *arguments: str) -> Any:
        """What `lakehouse … --json` says, in this process; it must end well."""
        return self._terminal.json(*arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `lakehouse …` to its end, in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "lakehouse", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1_800,
            check=False,
        )

    def kill(self, *arguments: str, when: Callable[[], object]) -> None:
        """Starts `lakehouse …` and kills it with SIGKILL as soon as `when()` holds; fails if it ends before that."""
        command = [sys.executable, "-m", "lakehouse", *arguments]
        process = subprocess.Popen(
            command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + 300
            while not when():
                assert process.poll() is None, (
                    f"lakehouse {' '.join(arguments)} ended with {process.returncode} before it could be killed"
                )
                assert time.monotonic() < deadline, (
                    f"lakehouse {' '.join(arguments)}: the moment to kill it did not come"
                )
                time.sleep(0.05)  # between two looks at the lake
        finally:
            process.kill()
            process.wait()

    def __enter__(self) -> "World":
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "up.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self._starts],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            wait_until("the page answers", self._answers, seconds=300, every=0.1)
            self.answered = time.monotonic()
            wait_until("its code is loaded", self._is_up, seconds=300, every=0.5)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Ctrl-C, as a person presses it; waits for the end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=300)

    def processes(self) -> list[str]:
        """The command lines of all processes that carry this world's home in their environment."""
        found: list[str] = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                if f"LAKEHOUSE_HOME={self.home}".encode() in (
                    folder / "environ"
                ).read_bytes().split(b"\0"):
                    found.append(
                        (folder / "cmdline")
                        .read_bytes()
                        .replace(b"\0", b" ")
                        .decode(errors="replace")
                    )
            except OSError:
                continue
        return found

    def _answers(self) -> bool:
        return self._alive() and self.page.answers()

    def _is_up(self) -> bool:
        return self._alive() and self.page.is_up()

    def _alive(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (
            self.home / "up.log"
        ).read_text()
        return True
