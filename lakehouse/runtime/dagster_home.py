"""Where Dagster keeps what it recorded of this lake, set up without importing Dagster."""

import json
import os
from pathlib import Path

from lakehouse.core.settings import Settings
from lakehouse.runtime.project import ROOT

_DEFAULT = "base_dir: .lakehouse/dagster"
_RUNS = "max_concurrent_runs: "


def dagster_home(settings: Settings) -> Path:
    """Dagster's folder in the lake's home, with the project's dagster.yaml in force for it; for DAGSTER_HOME.

    So many runs go at once as there are slots for compactions, and one that stays with the writers.
    """
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    runs = settings.compaction_slots + 1
    lines = (_with_runs(_with_folder(line, home), runs) for line in (ROOT / "dagster.yaml").read_text().splitlines())
    fresh = home / f"dagster.yaml.{os.getpid()}"
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(home / "dagster.yaml")
    return home


def _with_folder(line: str, home: Path) -> str:
    before, found, rest = line.partition(_DEFAULT)
    return f"{before}base_dir: {json.dumps(str(home) + rest)}" if found else line


def _with_runs(line: str, runs: int) -> str:
    before, found, _ = line.partition(_RUNS)
    return f"{before}{_RUNS}{runs}" if found else line
