"""Runs Dagster's web server, code server and daemon for `lakehouse up`.

`dagster dev` does the same, but its web server starts only after the code server has loaded the
definitions. Source: dagster 1.13, dagster/_cli/dev.py and dagster/_grpc/server_watcher.py.

1. The web server and the code server start at the same time. The web server looks for the code
   server each second.
2. The daemon starts when the code server answers. Without a code server, it would not retry
   interrupted runs, and could not launch queued runs.
3. A code server that has ended is started again, as in `dagster dev`. Its runs have ended with it.
4. At the end, each process is interrupted with its group (`base/processes.py`). The group of the
   code server includes the runs, which record the interruption.
"""

import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lakehouse.base.installation import ROOT
from lakehouse.base.processes import BoundProcess
from lakehouse.base.settings import Settings

_RESTART_SECONDS = 5.0  # as in `dagster dev`
# With Python's default thresholds, garbage collection takes a fifth of the import time.
_RUN_MODULE = """
import gc, runpy, sys
gc.set_threshold(50_000, 20, 20)
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


class DagsterServices:
    """Dagster's processes. Their output goes to `log`, and `folder` has files for this start."""

    def __init__(self, settings: Settings, log: Path, folder: Path) -> None:
        # Dagster's errors are shorter with DAGSTER_IS_DEV_CLI, which `dagster dev` also sets.
        own = {"DAGSTER_HOME": str(log.parent), "DAGSTER_IS_DEV_CLI": "1"}
        self._environment = {**os.environ, **settings.as_environ(), **own}
        self._log = log
        self._socket = folder / "code-server"
        self._commands = _commands(str(settings.port), folder, self._socket)
        self._running = dict[str, BoundProcess]()

    def start(self, name: str) -> None:
        """Starts the `web server`, the `code server` or the `daemon`."""
        command = [sys.executable, "-c", _RUN_MODULE, *self._commands[name]]
        with self._log.open("ab") as output:
            self._running[name] = BoundProcess(
                command, cwd=ROOT, env=self._environment, output=output
            )

    def check(self, say: Callable[[str], None]) -> str | None:
        """Starts what is missing. Returns the name of a process that has ended for good, if any."""
        if "daemon" not in self._running and self._socket.exists():
            self.start("daemon")
        ended = [name for name, process in self._running.items() if not process.is_alive]
        if ended == ["code server"]:
            say("the code server ended by itself and is started again")
            time.sleep(_RESTART_SECONDS)  # it may end again at once
            self.start("code server")
            return None
        return ended[0] if ended else None

    def end(self) -> None:
        """Ends the processes, and waits for their end."""
        for process in reversed(self._running.values()):
            process.end()


def _commands(port: str, folder: Path, socket: Path) -> Mapping[str, Sequence[str]]:
    """The module and arguments of each process. Writes their workspace.yaml to the folder.

    The code location has the module and the name that pyproject.toml gives to Dagster.
    """
    file = ROOT / "pyproject.toml"
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
