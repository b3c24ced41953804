"""Provides a Spark driver for one command.

Commands share a lock while they use the lake's Spark Connect server. If a command had to start the
server, the command stops it again at its end, but waits up to `_OTHERS_SECONDS` for other commands
that use the server.
"""

import contextlib
from collections.abc import Iterator
from typing import IO

from lakehouse.base.processes import hold_lock, take_lock
from lakehouse.base.settings import Settings
from lakehouse.cli.output import tell
from lakehouse.spark.server.server import folder, status, supervised
from lakehouse.spark.session import prepare, started_by

# How long the command that started the server waits at its end for other commands.
_OTHERS_SECONDS = 600


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
    with hold_lock(folder(settings) / "users.lock", shared=True) as users:
        if status(settings).condition != "stopped":
            # Uses the running server; raises an error if the server died or is still starting.
            prepare(settings)
            yield
            return
        tell(
            "starting a Spark Connect server for this command. Use lakehouse server start to keep "
            "one running"
        )
        with supervised(settings, tell):
            try:
                yield
            finally:
                wait_for_other_users(users)
        tell("stopped the Spark Connect server of this command")


@contextlib.contextmanager
def driver_on_demand(settings: Settings) -> Iterator[None]:
    """Like `driver_for_command`, but starts a server only when the block opens a session."""
    with contextlib.ExitStack() as stack:

        def start_driver() -> None:
            stack.enter_context(driver_for_command(settings))

        stack.enter_context(started_by(start_driver))
        yield


def wait_for_other_users(users: IO[str], *, seconds: float = _OTHERS_SECONDS) -> None:
    """Waits until no other command uses the server, at most `seconds`. Prints how long it waits."""
    minutes = round(seconds / 60)
    try:
        take_lock(users, seconds=0)
    except BlockingIOError:
        tell(f"another command uses this server; waiting for it to end, at most {minutes} min")
        try:
            take_lock(users, seconds=seconds)
        except BlockingIOError:
            tell(
                f"another command still uses this server after {minutes} min. The server is "
                "stopped now; run the other command again"
            )
