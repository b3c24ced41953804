"""`lakehouse replay`: the year of flights, played into the landing area."""

import click

from lakehouse.cli.opened import settings_in_force
from lakehouse.cli.output import json_option


@click.command("replay", short_help="Land a year of real flights, up to a day.", epilog="Example: lakehouse replay --until 2013-01-08")
@json_option
def replay_command(as_json: bool) -> None:
    """Land simulated hours of flights."""
    settings_in_force()
