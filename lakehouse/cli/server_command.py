"""`lakehouse server`: starts and stops the Spark Connect server."""

import contextlib
import time

import click

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.settings import Settings
from lakehouse.cli.context import open_declared, settings_in_force
from lakehouse.cli.output import attributes, json_option, show, tell, write_json
from lakehouse.spark.server import server
from lakehouse.spark.server.server import ServerState

_MEANING = {
    "running": "it answers",
    "starting": "its process runs, but does not answer yet",
    "died": "its process ended unexpectedly; its supervisor, if any, restarts it, or use lakehouse "
    "server start",
    "stopped": "it is not running; use lakehouse server start",
}


@click.command("server", epilog="Example: lakehouse server start")
@click.argument("action", required=False, type=click.Choice(["start", "stop"]))
@json_option
def server_command(action: str | None, as_json: bool) -> None:
    """Start or stop the Spark Connect server, and show its state, its address and its log.

    A server that is started here runs until it is stopped. With LAKEHOUSE_SPARK=server, a command
    that needs Spark (for example materialize) starts the server if it is stopped, and stops it
    again when the command ends. A server that another process supervises (make run, dagster dev or
    a command) is not stopped here: use Ctrl-C where that process runs.
    """
    settings = settings_in_force()
    state = server.status(settings)
    if action == "start":
        from lakehouse.query.catalog import name_tables
        from lakehouse.spark.session import connect

        if settings.spark != "server":
            raise Refused(
                "server start: LAKEHOUSE_SPARK names another Spark. Use LAKEHOUSE_SPARK=server"
            )
        if state.condition in ("stopped", "died"):
            tell("starting the Spark Connect server (a few seconds)")
        state = server.start(settings)
        try:
            context = open_declared()
            name_tables(context.lake, connect(settings), [*context.tables.values()])
        except LakehouseError as error:  # the server has started nevertheless
            tell(f"the tables have no names in Spark: {error}")
    if action == "stop":
        if not server.stop(settings):
            tell("there was no server to stop")
        state = server.status(settings)
    _show(settings, state, as_json=as_json)


def _show(settings: Settings, state: ServerState, *, as_json: bool) -> None:
    uptime_seconds = None
    if state.pid is not None:
        with contextlib.suppress(FileNotFoundError):
            # Every start writes this file again, so its age is the server's uptime.
            started = (server.folder(settings) / "pid").stat().st_mtime
            uptime_seconds = max(0, int(time.time() - started))
    supervisor_pid = state.supervisor.pid if state.supervisor else None
    if as_json:
        write_json(
            {
                **attributes(state, "condition", "pid", "port"),
                "uptime_seconds": uptime_seconds,
                "log": str(state.log),
                "keeper_pid": supervisor_pid,  # the documented key
            }
        )
        return
    show(f"Spark Connect server: {state.condition} ({_MEANING[state.condition]})")
    show(f"  address  localhost:{state.port}")
    if state.pid is not None:
        uptime = "" if uptime_seconds is None else f", up for {uptime_seconds} s"
        supervised = "" if supervisor_pid is None else f", supervised by process {supervisor_pid}"
        show(f"  process  {state.pid}{uptime}{supervised}")
    show(f"  log      {state.log}")
