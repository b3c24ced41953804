"""A Spark driver for as long as a command needs one.

Commands share a lock while they use the lake's server: one that was started for a command ends after the last of those that use it.
"""

import contextlib
from collections.abc import Iterator
from typing import IO

from lakehouse.cli.output import tell
from lakehouse.core.settings import Settings
from lakehouse.engine.spark.open_session import prepare
from lakehouse.runtime.processes import hold_lock, take_lock
from lakehouse.runtime.server import folder, status, supervised

_OTHERS_SECONDS = 600


@contextlib.contextmanager
def driver_for_command(settings: Settings) -> Iterator[None]:
    """Makes sure that Spark answers: the running server is used; if there is none, and none should be there, one is started and stopped.

    Raises:
        Transient: a server should be there and does not answer, or another command starts one just now.
        Refused, Broken: it cannot be started.
    """
    if settings.spark != "server":
        prepare(settings)
        yield
        return
    with hold_lock(folder(settings) / "users.lock", shared=True) as users:
        if status(settings).condition != "stopped":
            prepare(settings)
            yield
            return
        tell(
            "no Spark Connect server of this lake runs; starting one for this command (to keep one: lakehouse server start)"
        )
        with supervised(settings, tell):
            try:
                yield
            finally:
                wait_for_other_users(users)
        tell("the Spark Connect server of this command is stopped")


def wait_for_other_users(users: IO[str], *, seconds: float = _OTHERS_SECONDS) -> None:
    """Returns when no other command uses the server, and none can begin to; or after `seconds`, which is told."""
    minutes = round(seconds / 60)
    try:
        take_lock(users, seconds=0)
    except BlockingIOError:
        tell(f"another command uses this server; waiting for it, {minutes} min at most")
        try:
            take_lock(users, seconds=seconds)
        except BlockingIOError:
            tell(
                f"another command still uses this server after {minutes} min; the server stops, that command fails and can be run again"
            )
