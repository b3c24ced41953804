"""`lakehouse up`: everything at once, in the foreground; what `make run` calls."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import click

from lakehouse.cli.context import settings_in_force
from lakehouse.cli.output import show, tell
from lakehouse.core.errors import Transient
from lakehouse.core.settings import Settings
from lakehouse.engine.lake import open_lake
from lakehouse.engine.lake_owner import claim


@click.command("up", epilog="Example: LAKEHOUSE_PORT=3001 lakehouse up")
def up_command() -> int | None:
    """Run Spark, page and sensors in the foreground, until Ctrl-C."""
    from lakehouse.runtime.foreground import run_all

    settings = settings_in_force()
    return run_all(
        settings, _show_lines, check=partial(check_owner, settings), prepare=close_dead_runs
    )


def check_owner(settings: Settings) -> None:
    """Refuses a lake that another driver writes to; one whose storage does not answer now is asked by each run that writes."""
    try:
        claim(open_lake(settings), asked="lakehouse up")
    except Transient as error:
        tell(f"{type(error).__name__}: {error}")


def _show_lines(text: str) -> None:
    """Of a sentence that brings the end of a log, each line."""
    for line in text.splitlines():
        show(line)


def close_dead_runs(home: Path) -> None:
    """Closes the runs that died with the machine, or with what was up before.

    In a process of its own: this one stays for days, and would keep Dagster's modules in memory as long.
    """
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse.defs.run_ownership", str(home)]
    environ = {**os.environ, "DAGSTER_HOME": str(home)}
    has_runs = (home / "history" / "runs.db").exists()
    if has_runs and (
        code := subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, check=False
        ).returncode
    ):
        tell(
            f"runs that died with their processes could not be closed (exit code {code}); the page shows them as started"
        )
