"""The state of the lake's Spark Connect server, kept in the file `<home>/server/pid`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings
from lakehouse.runtime.processes import Process, port_answers
from lakehouse.runtime.spark_conf import storage_of, write_private

Condition = Literal["running", "starting", "died", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The state of the lake's server.

    - `condition`: `running` if its port answers, `starting` if only its process is alive, `died` if
      it ended unexpectedly, `stopped` if it was stopped, or ended together with its supervisor.
    - `storage`: the storage that the server was started for (see `storage_of`).
    - `supervisor`: the running process, if any, that restarts the server when it dies.
    """

    condition: Condition
    port: int
    log: Path
    storage: str | None = None
    process: Process | None = None
    supervisor: Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether the process is alive and its port answers."""
        return self.condition == "running"

    @property
    def pid(self) -> int | None:
        """The JVM's process id, if it is alive."""
        if self.process is None or self.condition not in ("running", "starting"):
            return None
        return self.process.pid


def folder(settings: Settings) -> Path:
    """The folder of the server's token, pid file, log and scratch files."""
    return settings.home / "server"


def status(settings: Settings) -> ServerState:
    """The server's current state, after checking its process and its port."""
    log = folder(settings) / "server.log"
    try:
        record = json.loads((folder(settings) / "pid").read_text())
    except FileNotFoundError:
        return ServerState(condition="stopped", port=settings.spark_port, log=log)
    process = Process(**record["process"])
    port = int(record["port"])
    supervisor = Process(**record["keeper"]) if record["keeper"] else None
    if supervisor and not supervisor.is_alive:
        supervisor = None
    if process.is_alive:
        condition: Condition = "running" if port_answers(port) else "starting"
    else:
        supervisor_was_killed = bool(record["keeper"]) and supervisor is None
        condition = "stopped" if supervisor_was_killed else "died"
    return ServerState(
        condition=condition,
        port=port,
        log=log,
        storage=record.get("storage"),
        process=process,
        supervisor=supervisor,
    )


def check_serves(settings: Settings, state: ServerState) -> None:
    """Refuses a running server with another port or, for a lake on S3, another storage."""
    if state.port != settings.spark_port:
        raise Refused(
            f"the Spark Connect server of this lake runs at port {state.port}, but "
            f"LAKEHOUSE_SPARK_PORT is {settings.spark_port}. Either set it to {state.port}, or run "
            "lakehouse server stop"
        )
    storage = storage_of(settings)
    if settings.on_s3 and state.storage not in (None, storage):
        raise Refused(
            f"the Spark Connect server of this lake was started for {state.storage}, but the "
            f"settings now name {storage}. Stop the server: use lakehouse server stop, or Ctrl-C "
            "where lakehouse up runs"
        )


def remember(settings: Settings, process: Process, supervisor: Process | None) -> None:
    """Records the launched server for `status`."""
    record = {
        "process": asdict(process),
        "keeper": asdict(supervisor) if supervisor else None,
        "port": settings.spark_port,
        "storage": storage_of(settings),
    }
    write_private(folder(settings) / "pid", json.dumps(record))
