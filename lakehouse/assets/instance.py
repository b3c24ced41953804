"""Dagster's instance in the lake's home, used by `dagster dev` without DAGSTER_HOME.

Without DAGSTER_HOME, `dagster dev` reads the dagster.yaml of its folder, but keeps its records in a
temporary folder that it deletes at the end. The `instance_class` in the project's dagster.yaml is
the class below, which keeps the records in LAKEHOUSE_DAGSTER_HOME instead. Source: dagster 1.13,
dagster/_core/instance/ref.py, InstanceRef.from_dir.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.instance.ref import InstanceRef  # not public

from lakehouse.assets.home import dagster_home, runs_at_once
from lakehouse.base.installation import project_settings


class HomeInstance(dg.DagsterInstance):
    """An instance that stores its records as the dagster.yaml in LAKEHOUSE_DAGSTER_HOME says."""

    @classmethod
    def config_schema(cls) -> Mapping[str, Any]:
        """The options of this class in dagster.yaml. It has no options."""
        return {}

    @staticmethod
    def config_defaults(base_dir: str) -> Mapping[str, Any]:
        """Dagster's defaults, with the storage of that dagster.yaml."""
        home = InstanceRef.from_dir(str(dagster_home(project_settings())))
        return {
            **InstanceRef.config_defaults(base_dir),
            "storage": home.storage_data,
            "local_artifact_storage": home.local_artifact_storage_data,
            "compute_logs": home.compute_logs_data,
        }

    def get_settings(self, settings_key: str) -> Any:
        """The project's settings in dagster.yaml, with the run limit from the lake's settings."""
        settings = super().get_settings(settings_key)
        if settings_key == "concurrency":
            return {**settings, "runs": {"max_concurrent_runs": runs_at_once(project_settings())}}
        return settings
