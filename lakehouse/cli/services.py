"""Runs Dagster's web server, code server and daemon for `lakehouse up`.

`dagster dev` does the same, but its web server starts only after the code server has loaded the
definitions. Source: dagster 1.13, dagster/_cli/dev.py and dagster/_grpc/server_watcher.py.

1. In a new home, Dagster's SQLite files are made first: no two processes can make them at once.
   Then the web server and the code server start at the same time. The web server looks for the code
   server each second.
2. The daemon starts when the code server answers. Without a code server, it would not retry
   interrupted runs, and could not launch queued runs.
3. A code server that has ended is started again, as in `dagster dev`.
4. If the web server or the daemon has ended, this process interrupts its process group, and waits
   for the end of all three. The group includes the runs, which record the interruption.
5. When `lakehouse up` ends, the guard of this process (`base/processes.py`) interrupts the group.
   When this process has ended, the guard kills the rest of the group.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakehouse.base.processes import die_with_parent

_RESTART_SECONDS = 5.0  # as in `dagster dev`
# With Python's default thresholds, garbage collection takes a fifth of the import time.
_RUN_MODULE = """
import gc, runpy, sys
gc.set_threshold(50_000, 20, 20)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
_MAKE_RECORDS = """
from dagster import DagsterInstance
with DagsterInstance.get() as instance:
    instance.run_storage, instance.event_log_storage, instance.schedule_storage
"""
# A process that drops an interrupt while it imports its modules gets it again.
_INTERRUPT_SECONDS = 3.0


def main(port: str) -> int:
    """Runs the three processes until an interrupt (returns 0), or until one ends (returns 1)."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    running = dict[str, subprocess.Popen[bytes]]()
    ended: str | None = None
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "code-server"
        commands = _commands(port, Path(folder), socket)
        with contextlib.suppress(KeyboardInterrupt):
            ended = _run(commands, socket, running)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if ended is not None:
            os.killpg(os.getpgrp(), signal.SIGINT)
        for process in running.values():
            while process.poll() is None:
                try:
                    process.wait(timeout=_INTERRUPT_SECONDS)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGINT)
    if ended is None:
        return 0
    _log(f"the {ended} ended by itself with exit code {running[ended].returncode}")
    return 1


def _run(
    commands: Mapping[str, Sequence[str]], socket: Path, running: dict[str, subprocess.Popen[bytes]]
) -> str:
    """Starts the processes and adds them to `running`. Returns the first one that has ended."""
    # The file that is made last.
    if not Path(os.environ["DAGSTER_HOME"], "schedules", "schedules.db").is_file():
        command = [sys.executable, "-c", _MAKE_RECORDS]
        subprocess.run(command, check=True, preexec_fn=die_with_parent)
    running["web server"] = _start(commands["web server"])
    running["code server"] = _start(commands["code server"])
    while True:
        if "daemon" not in running and socket.exists():
            running["daemon"] = _start(commands["daemon"])
        for name, process in running.items():
            if process.poll() is not None and name != "code server":
                return name
        if running["code server"].poll() is not None:
            _log("the code server ended by itself and is started again")
            time.sleep(_RESTART_SECONDS)
            running["code server"] = _start(commands["code server"])
        time.sleep(0.2)  # polls the processes


def _commands(port: str, folder: Path, socket: Path) -> Mapping[str, Sequence[str]]:
    """The module and arguments of each process. Writes their workspace.yaml to the folder.

    The code location has the module and the name that pyproject.toml gives to Dagster.
    """
    file = Path("pyproject.toml")
    tool = tomllib.loads(file.read_text()).get("tool", {}) if file.is_file() else {}
    dagster = tool.get("dagster", {})
    project = tool.get("dg", {}).get("project", {})
    module = dagster.get("module_name") or project.get("code_location_target_module")
    name = dagster.get("code_location_name") or project.get("code_location_name")
    location_name = name or module or "lakehouse"
    module = module or "lakehouse.definitions"
    workspace = str(folder / "workspace.yaml")
    server = {"location_name": location_name, "socket": str(socket)}
    Path(workspace).write_text(json.dumps({"load_from": [{"grpc_server": server}]}))
    return {
        "web server": (
            *("dagster_webserver", "--host", "127.0.0.1", "--port", port),
            *("--workspace", workspace),
        ),
        "code server": (
            *("dagster", "code-server", "start", "--socket", str(socket), "--log-level", "warning"),
            *("--module-name", module, "--location-name", location_name),
            "--inject-env-vars-from-instance",
        ),
        "daemon": ("dagster._daemon", "run", "--workspace", workspace),
    }


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    # Dagster's errors are shorter with this variable, which `dagster dev` also sets.
    environment = {**os.environ, "DAGSTER_IS_DEV_CLI": "1"}
    arguments = [sys.executable, "-c", _RUN_MODULE, *command]
    return subprocess.Popen(arguments, env=environment, preexec_fn=die_with_parent)


def _log(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
