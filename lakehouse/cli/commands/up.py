"""`lakehouse up`: runs the whole lake in the foreground, also for `make run`."""

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
from lakehouse.engine.conditional_commits import refuse_unsafe_storage
from lakehouse.engine.lake import open_lake
from lakehouse.runtime.dagster_files import has_open_runs


@click.command("up", epilog="Example: LAKEHOUSE_PORT=3001 lakehouse up")
def up_command() -> int | None:
    """Run Spark, Dagster's web page and the sensors in the foreground, until Ctrl-C.

    Spark runs here only with LAKEHOUSE_SPARK=server.
    """
    from lakehouse.runtime.foreground import run_all

    settings = settings_in_force()
    return run_all(
        settings, _show_lines, check=partial(check_storage, settings), prepare=close_dead_runs
    )


def check_storage(settings: Settings) -> None:
    """Refuses storage on which a commit could overwrite another one.

    If storage does not answer, the error is only printed: each run checks again.
    """
    try:
        refuse_unsafe_storage(open_lake(settings), asked="lakehouse up")
    except Transient as error:
        tell(f"{type(error).__name__}: {error}")


def _show_lines(text: str) -> None:
    """Prints a text line by line, since `show` escapes line breaks."""
    for line in text.splitlines():
        show(line)


def close_dead_runs(home: Path) -> None:
    """Starts a process that closes the Dagster runs whose own process has ended.

    `lakehouse up` runs for days, and would keep Dagster in memory if it imported Dagster. The
    process is started only if a run is open, because the import takes over a second.
    """
    if not has_open_runs(home):
        return
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse.defs.run_ownership", str(home)]
    environ = {**os.environ, "DAGSTER_HOME": str(home)}
    result = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        tell(
            f"runs whose process has ended could not be closed (exit code {result.returncode}); "
            "Dagster's page shows them as started"
        )
