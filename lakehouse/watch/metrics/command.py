"""`lakehouse metrics`: the metrics of the lake for Prometheus, as text or over HTTP."""

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import click

from lakehouse.base.errors import Refused
from lakehouse.cli.context import LakeContext, complete_table, open_tables
from lakehouse.cli.output import show

if TYPE_CHECKING:
    from lakehouse.watch.metrics.run import Counters, Families

# With --serve, metrics are read again if they are older than this. On S3, each reading costs a few
# requests per table.
_MAX_AGE_SECONDS = 30
_MAX_AGE_SECONDS_ON_S3 = 300


@click.command("metrics", epilog="Example: lakehouse metrics bronze/weather")
@click.argument("tables", metavar="[TABLE|ADDRESS]...", nargs=-1, shell_complete=complete_table)
@click.option(
    "--serve",
    is_flag=True,
    help="Serve the metrics at LAKEHOUSE_METRICS_PORT on loopback, until Ctrl-C.",
)
def metrics_command(tables: tuple[str, ...], serve: bool) -> None:
    """Print the lake's metrics in Prometheus' text format. Does not start a JVM.

    The metrics cover health, size, upkeep and checks of each TABLE (default: all). `lakehouse up`
    serves the same metrics, and counters of the operations since it started. TABLE may also be the
    ADDRESS of a Delta table that is not declared.
    """
    from lakehouse.watch.metrics.run import metrics_text

    context, chosen = open_tables(tables)
    selection = LakeContext(lake=context.lake, tables={table.key: table for table in chosen})
    if serve:
        _serve(selection)
        return
    for line in metrics_text(_read(selection)).splitlines():
        show(line)


def _read(context: LakeContext, counters: "Counters | None" = None) -> "Families":
    from lakehouse.watch.metrics.run import read_gauges

    home = context.lake.settings.dagster_home
    return read_gauges(context.lake, context.tables.values(), dagster_home=home, counters=counters)


def _serve(context: LakeContext) -> None:
    from lakehouse.watch.metrics.run import serve

    settings = context.lake.settings
    port = settings.metrics_port
    if port == 0:
        raise Refused("metrics: LAKEHOUSE_METRICS_PORT is 0. Use the number of a free port")
    seconds = _MAX_AGE_SECONDS_ON_S3 if settings.on_s3 else _MAX_AGE_SECONDS
    try:
        stop_server = serve(partial(_read, context), max_age_seconds=seconds, port=port)
    except OSError as error:
        raise Refused(
            f"metrics: port {port} cannot be opened ({error}). Set LAKEHOUSE_METRICS_PORT to a free"
            " port"
        ) from error
    show(f"metrics at http://127.0.0.1:{port}/metrics")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    try:
        stopped.wait()
    finally:
        stop_server()
