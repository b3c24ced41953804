"""Sets up the DAGSTER_HOME of a lake and reads Dagster's files, without importing Dagster.

Source: dagster 1.13, dagster/_core/storage/runs/schema.py and event_log/schema.py.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import yaml

from lakehouse.base.errors import Refused
from lakehouse.base.settings import Settings

# The checkout's dagster.yaml is a link to this file.
TEMPLATE = Path(__file__).with_name("dagster.yaml")


def dagster_home(settings: Settings) -> Path:
    """The lake's DAGSTER_HOME. Writes its dagster.yaml from the project's and from the settings.

    If `LAKEHOUSE_DAGSTER_HOME` names another folder, that folder is returned, and nothing is
    written.

    Raises:
        Refused: the folder in `LAKEHOUSE_DAGSTER_HOME` has no dagster.yaml.
    """
    home = settings.dagster_home
    if home != settings.home / "dagster":
        if not (home / "dagster.yaml").is_file():
            raise Refused(
                f"LAKEHOUSE_DAGSTER_HOME is {home}, which has no dagster.yaml. Either add one "
                "(deploy/dagster.yaml is an example), or unset LAKEHOUSE_DAGSTER_HOME"
            )
        return home
    home.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_load(TEMPLATE.read_text())
    del config["instance_class"]  # `HomeInstance`, which itself calls this function
    config["event_log_storage"] = {
        "module": "lakehouse.assets.storage",
        "class": "EventLog",
        "config": {"base_dir": f"{home}/history/runs"},
    }
    config["compute_logs"] = {
        "module": "dagster._core.storage.local_compute_log_manager",
        "class": "LocalComputeLogManager",
        "config": {"base_dir": str(home / "logs")},
    }
    config["concurrency"]["runs"]["max_concurrent_runs"] = runs_at_once(settings)
    temporary = home / f"dagster.yaml.{os.getpid()}"
    temporary.write_text(yaml.safe_dump(config, sort_keys=False))
    temporary.replace(home / "dagster.yaml")
    return home


def runs_at_once(settings: Settings) -> int:
    """The most runs that Dagster executes at a time: the compaction slots, and one for writers."""
    return settings.compaction_slots + 1


# How long to wait for a locked file. Dagster's writers hold their lock for milliseconds. Longer
# waits are not worthwhile, because no other work depends on these figures.
_BUSY_SECONDS = 1
# The newest result of each check. A check that is still PLANNED has no result.
NEWEST_CHECKS = """
    SELECT asset_key, check_name, execution_status FROM asset_check_executions WHERE id IN (
        SELECT max(id) FROM asset_check_executions
        WHERE execution_status IN ('SUCCEEDED', 'FAILED') GROUP BY asset_key, check_name)
"""
# A queued run does not count as open: it has not begun, and Dagster's next daemon will start it.
_OPEN_RUNS = """
    SELECT EXISTS (SELECT 1 FROM runs
        WHERE status NOT IN ('QUEUED', 'SUCCESS', 'FAILURE', 'CANCELED'))
"""


def newest_checks(home: Path) -> dict[tuple[str, str], bool] | None:
    """Whether each check passed last, by asset (`bronze/orders`) and the check's name.

    `None` if a DAGSTER_HOME has no SQLite file of runs.

    Raises:
        sqlite3.Error: a file cannot be read.
    """
    index = home / "history" / "runs" / "index.db"
    if not (home / "history" / "runs.db").exists():
        return None
    checks = dict[tuple[str, str], bool]()
    if index.exists():
        with _connection(index) as connection:
            for asset_key, check, status in connection.execute(NEWEST_CHECKS):
                checks["/".join(json.loads(asset_key)), check] = status == "SUCCEEDED"
    return checks


def folder_bytes(folder: Path) -> int:
    """The total size of all files in a folder and below it."""
    size_bytes = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # it has just been deleted
            size_bytes += file.stat().st_size if file.is_file() else 0
    return size_bytes


def has_open_runs(home: Path) -> bool:
    """Whether a run below a DAGSTER_HOME has begun but not ended; also true if unknown."""
    runs = home / "history" / "runs.db"
    try:
        with _connection(runs) as connection:
            [is_open] = connection.execute(_OPEN_RUNS).fetchone()
    except sqlite3.Error:
        return True
    return bool(is_open)


@contextmanager
def _connection(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection to a SQLite file."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS)) as connection:
        yield connection
