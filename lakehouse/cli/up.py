"""`lakehouse up`: everything at once, in the foreground; what `make run` calls."""

import os
import subprocess
import sys
from pathlib import Path

import click

from lakehouse.cli.opened import settings_in_force
from lakehouse.cli.output import show, tell


@click.command("up", short_help="Run everything in the foreground, until Ctrl-C.", epilog="Example: LAKEHOUSE_PORT=3001 lakehouse up")
def up_command() -> int | None:
    """Run everything in the foreground: Spark server, page, sensors. Ctrl-C stops all of it."""
    from lakehouse.engine.up import run_all

    return run_all(settings_in_force(), _show_lines, prepare=close_dead_runs)


def _show_lines(text: str) -> None:
    """Of a sentence that brings the end of a log, each line."""
    for line in text.splitlines():
        show(line)


def close_dead_runs(home: Path) -> None:
    """Closes the runs that died with the machine, or with what was up before.

    In a process of its own: this one stays for days, and would keep Dagster's modules in memory as long.
    """
    if not (home / "history" / "runs.db").exists():
        return
    command = [sys.executable, "-W", "ignore", "-m", "lakehouse.defs.carriers", str(home)]
    code = subprocess.run(command, env={**os.environ, "DAGSTER_HOME": str(home)}, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        tell(f"runs that died with their processes could not be closed (exit code {code}); the page shows them as started")
