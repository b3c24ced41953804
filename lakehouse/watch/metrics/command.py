"""`lakehouse metrics`: the metrics of the lake for Prometheus, as text or over HTTP."""

import threading
from functools import partial

import click

from lakehouse.base.errors import Refused
from lakehouse.cli.context import open_tables, tables_argument
from lakehouse.cli.output import flag, show, show_lines

# With --serve, metrics are read again if they are older than this. On S3, each reading costs a few
# requests per table.
_MAX_AGE_SECONDS = 30
_MAX_AGE_SECONDS_ON_S3 = 300


@click.command("metrics", epilog="Example: lakehouse metrics bronze/weather")
@tables_argument
@flag(
    "--serve",
    help="Serve the metrics at LAKEHOUSE_METRICS_PORT on loopback, until Ctrl-C.",
)
def metrics_command(tables: tuple[str, ...], serve: bool) -> None:
    """Print the lake's metrics in Prometheus' text format. Does not start a JVM.

    The metrics cover health, size, upkeep and checks of each TABLE (default: all). `lakehouse up`
    serves the same metrics, and counters of the operations since it started. TABLE may also be the
    ADDRESS of a Delta table that is not declared.
    """
    from lakehouse.watch.metrics import run

    context, chosen = open_tables(tables)
    settings = context.lake.settings
    read = partial(run.read_metrics, context.lake, chosen, dagster_home=settings.dagster_home)
    if not serve:
        show_lines(run.metrics_text(read()))
        return
    port = settings.metrics_port
    if port == 0:
        raise Refused("metrics: LAKEHOUSE_METRICS_PORT is 0. Use the number of a free port")
    seconds = _MAX_AGE_SECONDS_ON_S3 if settings.on_s3 else _MAX_AGE_SECONDS
    try:
        run.serve(read, max_age_seconds=seconds, port=port)
    except OSError as error:
        raise Refused(
            f"metrics: port {port} cannot be opened ({error}). Set LAKEHOUSE_METRICS_PORT to a free"
            " port"
        ) from error
    show(f"metrics at http://127.0.0.1:{port}/metrics")
    threading.Event().wait()
