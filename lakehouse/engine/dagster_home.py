"""Where Dagster keeps what it recorded of this lake, set up without importing Dagster."""

import json
import os
from pathlib import Path

from lakehouse.core.settings import Settings
from lakehouse.engine.project import ROOT

_DEFAULT = "base_dir: .lakehouse/dagster"


def dagster_home(settings: Settings) -> Path:
    """Dagster's folder in the lake's home, with the project's dagster.yaml in force for it; for DAGSTER_HOME."""
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    lines = (_with_folder(line, home) for line in (ROOT / "dagster.yaml").read_text().splitlines())
    fresh = home / f"dagster.yaml.{os.getpid()}"
    fresh.write_text("\n".join(lines) + "\n")
    fresh.replace(home / "dagster.yaml")
    return home


def _with_folder(line: str, home: Path) -> str:
    before, found, rest = line.partition(_DEFAULT)
    return f"{before}base_dir: {json.dumps(str(home) + rest)}" if found else line
