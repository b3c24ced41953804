"""Sets up the DAGSTER_HOME of a lake, without importing Dagster."""

import os
from pathlib import Path

import yaml

from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings

# The checkout's dagster.yaml is a link to this file.
_TEMPLATE = Path(__file__).with_name("dagster.yaml")


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
    config = yaml.safe_load(_TEMPLATE.read_text())
    del config["instance_class"]  # `HomeInstance`, which itself calls this function
    config["storage"] = {"sqlite": {"base_dir": str(home)}}
    config["local_artifact_storage"] = {
        "module": "dagster._core.storage.root",
        "class": "LocalArtifactStorage",
        "config": {"base_dir": str(home)},
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
