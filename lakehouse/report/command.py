"""`lakehouse report`: the state of the lake on one HTML page."""

import sqlite3
from contextlib import suppress
from pathlib import Path

import click

from lakehouse.assets.home import newest_checks
from lakehouse.base.errors import Refused
from lakehouse.base.text import count_of
from lakehouse.cli.context import open_declared
from lakehouse.cli.output import json_option, show, write_json

_OUT = Path("report.html")


@click.command("report", epilog="Example: lakehouse report --out report.html")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_OUT,
    show_default=True,
    help="The HTML file that is written or replaced.",
)
@json_option
def report_command(out: Path, as_json: bool) -> None:
    """Write the state of the lake to one HTML page. Does not start a JVM.

    The page shows what needs attention, the tables by health, the compactions of the last seven
    days, and the costs. It loads nothing from the network. With --json, the same values are printed
    and no file is written.
    """
    from lakehouse.report.run import read_report, render_page

    context = open_declared()
    failed = list[tuple[str, str]]()
    with suppress(OSError, sqlite3.Error):
        checks = newest_checks(context.lake.settings.dagster_home) or {}
        failed = [check for check, has_passed in checks.items() if not has_passed]
    report = read_report(context.lake, context.tables, failed_checks=failed)
    if as_json:
        write_json(report)
        return
    try:
        out.write_text(render_page(report), encoding="utf-8")
    except OSError as error:
        raise Refused(f"report: {out} cannot be written ({error}). Use another file") from error
    items = count_of(len(report["attention"]), "item")
    show(f"{out}: {items} for your attention, {count_of(len(report['tables']), 'table')}")
