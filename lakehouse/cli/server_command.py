"""`lakehouse server`: starts and stops the Spark Connect server, also for one command.

Commands share a lock while they use the lake's Spark Connect server. If a command had to start the
server, the command stops it again at its end, after all other commands that use it.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import IO, Any

import click

from lakehouse.base.errors import LakehouseError, Refused
from lakehouse.base.processes import hold_lock, take_lock
from lakehouse.base.settings import Settings
from lakehouse.cli.context import open_declared
from lakehouse.cli.output import attributes, json_option, show, tell, write_json
from lakehouse.cli.settings import settings_in_force
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.spark.server import server
from lakehouse.spark.server.server import ServerState
from lakehouse.spark.session import connect, prepare

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
        from lakehouse.query.run import name_tables

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
    _show(state, as_json=as_json)


def _show(state: ServerState, *, as_json: bool) -> None:
    document = {
        **attributes(state, "condition", "pid", "port"),
        "log": str(state.log),
        "keeper_pid": state.supervisor.pid if state.supervisor else None,  # the documented key
    }
    if as_json:
        write_json(document)
        return
    show(f"Spark Connect server: {state.condition} ({_MEANING[state.condition]})")
    for name, value in document.items():
        if value is not None:
            show(f"  {name:<15} {value}")


@contextlib.contextmanager
def driver_for_command(settings: Settings) -> Iterator[None]:
    """Makes Spark ready for the block. With `LAKEHOUSE_SPARK=server`, starts a stopped server.

    Raises:
        Transient: the server died or does not answer yet, or another command is starting a server.
        Refused, Broken: the server cannot be started.
    """
    if settings.spark != "server":
        prepare(settings)
        yield
        return
    with hold_lock(server.folder(settings) / "users.lock", shared=True) as users:
        if server.status(settings).condition != "stopped":
            # Uses the running server; raises an error if the server died or is still starting.
            prepare(settings)
            yield
            return
        tell(
            "starting a Spark Connect server for this command. Use lakehouse server start to keep "
            "one running"
        )
        with server.supervised(settings, tell):
            try:
                yield
            finally:
                wait_for_other_users(users)
        tell("stopped the Spark Connect server of this command")


@contextlib.contextmanager
def table_session(lake: Lake, table: Table) -> Iterator[TableSession]:
    """Yields a session for one table. Starts Spark as `driver_for_command`."""
    with driver_for_command(lake.settings):
        yield TableSession(lake=lake, spark=connect(lake.settings), table=table)


@contextlib.contextmanager
def driver_on_demand(settings: Settings) -> Iterator[Callable[[], Any]]:
    """Yields a function that opens a session. Its first call does as `driver_for_command`."""
    with contextlib.ExitStack() as stack:

        @cache
        def start_driver() -> None:
            stack.enter_context(driver_for_command(settings))

        def open_session() -> Any:
            start_driver()
            return connect(settings)

        yield open_session


def wait_for_other_users(users: IO[str]) -> None:
    """Waits until no other command uses the server."""
    try:
        take_lock(users, seconds=0)
    except BlockingIOError:
        tell("another command uses this server; waiting for it to end")
        take_lock(users)
