"""A Spark driver for as long as a command needs one."""

import contextlib
from collections.abc import Iterator

from lakehouse.cli.output import tell
from lakehouse.core.settings import Settings
from lakehouse.engine.server import status, supervised
from lakehouse.engine.spark import prepare


@contextlib.contextmanager
def driver_for_command(settings: Settings) -> Iterator[None]:
    """Makes sure that Spark answers: the running server is used; if there is none, and none should be there, one is started and stopped.

    Raises:
        Transient: a server should be there and does not answer; a second one must not hide that.
        Refused, Broken: it cannot be started.
    """
    if settings.spark == "server" and status(settings).condition == "stopped":
        tell("no Spark Connect server of this lake runs; starting one for this command (to keep one: lakehouse server start)")
        with supervised(settings, tell):
            yield
        tell("the Spark Connect server of this command is stopped")
    else:
        prepare(settings)
        yield
