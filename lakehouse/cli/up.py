"""`lakehouse up`: everything at once, in the foreground; what `make run` calls."""

import click

from lakehouse.cli.opened import settings_in_force


@click.command("up", short_help="Run everything in the foreground, until Ctrl-C.", epilog="Example: LAKEHOUSE_PORT=3001 lakehouse up")
def up_command() -> int | None:
    """Run everything in the foreground: Spark server, page, sensors. Ctrl-C stops all of it."""
    from lakehouse.engine.up import run_all

    return run_all(settings_in_force())
