"""The folder of Dagster's records of this lake, set up without importing Dagster."""

import os
from pathlib import Path
from typing import Any

import yaml

from lakehouse.core.delta.paths import split_bucket
from lakehouse.core.settings import Settings, s3_endpoint
from lakehouse.runtime.checkout import ROOT


def dagster_home(settings: Settings) -> Path:
    """Dagster's folder in the lake's home, with the project's dagster.yaml in force for it; for DAGSTER_HOME.

    So many runs go at once as there are slots for compactions, and one that stays with the writers.
    """
    home = settings.home / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    config["storage"]["sqlite"]["base_dir"] = config["local_artifact_storage"]["config"][
        "base_dir"
    ] = str(home)
    config["compute_logs"]["config"]["base_dir"] = str(home / "logs")
    config["concurrency"]["runs"]["max_concurrent_runs"] = settings.compaction_slots + 1
    if settings.compute_logs == "lake":
        # The output of runs goes to the lake's bucket when a step ends, and each half minute before that.
        bucket, prefix = split_bucket(settings.root)
        logs: dict[str, Any] = {
            "bucket": bucket,
            "prefix": f"{prefix}/_lakehouse/compute_logs",
            "local_dir": str(home / "logs"),
        }
        logs |= {"skip_empty_files": True, "upload_interval": 30}
        if endpoint := s3_endpoint(os.environ):
            logs["endpoint_url"] = endpoint
        config["compute_logs"] = {
            "module": "dagster_aws.s3.compute_log_manager",
            "class": "S3ComputeLogManager",
            "config": logs,
        }
    fresh = home / f"dagster.yaml.{os.getpid()}"
    fresh.write_text(yaml.safe_dump(config, sort_keys=False))
    fresh.replace(home / "dagster.yaml")
    return home
