"""`python -m lakehouse.runtime.keeper`: brings the Connect server up, and back, until standard input closes.

Its supervisor holds the other end of standard input: when that closes, in order or because the supervisor was killed, the server
ends. What happens is reported as JSON lines on standard output; the first one says whether the server is up.
"""

import contextlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.core.settings import Settings, parse_settings
from lakehouse.runtime import server
from lakehouse.runtime.processes import Process, hold_lock, identify

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 30.0
_STEADY_SECONDS = 60.0  # a server that lived this long starts again with the first pause


def main() -> int:
    """Keeps the server of the lake that the environment names; ends when nobody supervises any more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = parse_settings(os.environ, base=Path.cwd())
    keeper = identify(os.getpid())
    assert keeper is not None
    try:
        token, process = _first(settings, keeper)
    except LakehouseError as error:
        _report(type(error).__name__, str(error))
        return error.exit_code
    _report("ready", f"Spark Connect server up at localhost:{settings.spark_port}")
    try:
        _keep(settings, keeper, token, process)
    finally:
        with hold_lock(server.folder(settings) / "lock"):
            if server.status(settings).keeper == keeper:
                server.clear(settings)
    return 0


def _first(settings: Settings, keeper: Process) -> tuple[str, Process]:
    """The token and the process of a running server: one found, or one started."""
    with hold_lock(server.folder(settings) / "lock"):
        state = server.status(settings)
        if state.keeper is not None:
            raise Transient(
                f"this lake is already up: process {state.keeper.pid} keeps its Spark Connect server (log: {state.log}); try again"
            )
        if state.pid is not None:
            server.check_serves(settings, state)
            state = server.wait_until_running(settings, abandoned=_is_abandoned)
        else:
            server.launch(settings, token=server.make_token(settings), keeper=keeper)
            state = server.wait_until_running(settings, abandoned=_is_abandoned)
        token = server.read_token(settings)
        assert token is not None and state.process is not None
        return token, state.process


def _keep(settings: Settings, keeper: Process, token: str, process: Process) -> None:
    pause, since = _FIRST_PAUSE_SECONDS, time.monotonic()
    while not _is_abandoned(seconds=0.5):
        if process.is_alive:
            continue
        if time.monotonic() - since > _STEADY_SECONDS:
            pause = _FIRST_PAUSE_SECONDS
        _report("died", f"Spark Connect server died; starting it again in {pause:.0f} s (log: {server.folder(settings) / 'server.log'})")
        if _is_abandoned(seconds=pause):
            return
        pause, since = min(2 * pause, _LONGEST_PAUSE_SECONDS), time.monotonic()
        try:
            with hold_lock(server.folder(settings) / "lock"):
                server.launch(settings, token=token, keeper=keeper)
                state = server.wait_until_running(settings, abandoned=_is_abandoned)
        except LakehouseError as error:
            _report("failed", str(error))
        else:
            assert state.process is not None
            process = state.process
            _report("back", f"Spark Connect server up again at localhost:{settings.spark_port}")


def _is_abandoned(*, seconds: float = 0.0) -> bool:
    """Whether standard input closed, waiting for it at most that long."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and os.read(0, 1024) == b""


def _report(kind: str, text: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps({"kind": kind, "text": text}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
