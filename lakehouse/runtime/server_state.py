"""The state of the lake's Spark Connect server: a file with its pid and birth, its port and its storage."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings
from lakehouse.runtime.processes import Process, port_answers
from lakehouse.runtime.spark_settings import storage_of, write_private

Condition = Literal["running", "starting", "died", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The state of the lake's server. `died`: it should be there, and is not; `stopped`: nobody wants it now.

    `storage` is what it was told of storage at its start, as `storage_of` says it, if that was written down. `supervisor` is the
    living process that brings it back when it dies, if there is one.
    """

    condition: Condition
    port: int
    log: Path
    storage: str | None = None
    process: Process | None = None
    supervisor: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process lives and its port answers."""
        return self.condition == "running"

    @property
    def pid(self) -> int | None:
        """The JVM's process id, if it lives."""
        return (
            self.process.pid if self.process and self.condition in ("running", "starting") else None
        )


def folder(settings: Settings) -> Path:
    """The folder of the server's token, pid file, log and scratch files."""
    return settings.home / "server"


def status(settings: Settings) -> ServerState:
    """The server's state now: its process is looked at, and its port is probed."""
    log = folder(settings) / "server.log"
    try:
        kept = json.loads((folder(settings) / "pid").read_text())
    except FileNotFoundError:
        return ServerState(condition="stopped", port=settings.spark_port, log=log)
    process, port = Process(**kept["process"]), int(kept["port"])
    supervisor = Process(**kept["keeper"]) if kept["keeper"] else None
    if supervisor and not supervisor.is_alive:
        supervisor = None
    if process.is_alive:
        condition: Condition = "running" if port_answers(port) else "starting"
    else:
        condition = (
            "stopped" if kept["keeper"] and supervisor is None else "died"
        )  # its supervisor was killed
    told = kept.get("storage")
    return ServerState(
        condition=condition,
        port=port,
        log=log,
        storage=told,
        process=process,
        supervisor=supervisor,
    )


def check_serves(settings: Settings, state: ServerState) -> None:
    """Refuses to go on with a server of this lake that runs at another port, or cannot reach the lake's root."""
    if state.port != settings.spark_port:
        raise Refused(
            f"the Spark Connect server of this lake runs at port {state.port}, LAKEHOUSE_SPARK_PORT is {settings.spark_port}; "
            "one lake has one server: stop it first (lakehouse server stop) or use its port"
        )
    if settings.on_s3 and state.storage not in (None, wanted := storage_of(settings)):
        raise Refused(
            f"the Spark Connect server of this lake was started for {state.storage}, LAKEHOUSE_ROOT and the AWS_ variables now name "
            f"{wanted}; stop it first (lakehouse server stop, or Ctrl-C where lakehouse up runs)"
        )


def remember(settings: Settings, process: Process, supervisor: Process | None) -> None:
    """Writes down the server just launched, for `status`."""
    known = {"process": asdict(process), "keeper": asdict(supervisor) if supervisor else None}
    write_private(
        folder(settings) / "pid",
        json.dumps({**known, "port": settings.spark_port, "storage": storage_of(settings)}),
    )


def note_compaction(settings: Settings) -> None:
    """Writes down that the running server has compacted a table, for `is_cold`; nothing where it is not this lake's own."""
    process = _process_of(settings)
    if process is not None:
        write_private(folder(settings) / "compacted", json.dumps(process))


def is_cold(settings: Settings) -> bool:
    """Whether a compaction now would be the first of its server, which takes seconds longer; false for a server of others."""
    if settings.spark != "server":
        return False
    process = _process_of(settings)
    try:
        compacted = json.loads((folder(settings) / "compacted").read_text())
    except (FileNotFoundError, ValueError):
        return True
    return process is None or compacted != process


def _process_of(settings: Settings) -> object:
    """The process of the server launched last, as its file tells it; `None` where there is none."""
    try:
        kept = json.loads((folder(settings) / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return kept["process"] if settings.spark == "server" else None
