"""The upkeep of Delta tables as a component of Dagster's `dg`, declared in YAML."""

from typing import Any

import dagster as dg

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.defs.adoption.maintain import maintain
from lakehouse.defs.upkeep_times import NIGHTLY_CRON


class MaintainedTablesScaffolder(dg.Scaffolder[Any]):
    """Writes a `defs.yaml` in which the user changes one line."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Writes the file for a new component."""
        dg.scaffold_component(
            request,
            {"tables": {"sales/orders": "s3://warehouse/sales/orders"}, "writers": "unknown"},
        )


@dg.scaffold_with(MaintainedTablesScaffolder)
class MaintainedTables(dg.Component, dg.Model, dg.Resolvable):
    """Compaction, vacuum, checks and sensors for Delta tables that other assets write.

    `tables` are asset keys with addresses, resolved against the project's root. `min_small_files`,
    `target_file_bytes` and `engine` are knobs of `Compaction`; 0 keeps the layer's default. Other
    fields are as in `lakehouse.maintain`.
    """

    tables: dict[str, str]
    name: str = "maintenance"
    layer: str = "silver"
    writers: str = "unknown"
    orphans: str = "keep"
    min_small_files: int = 0
    target_file_bytes: int = 0
    engine: str = "auto"
    vacuum_cron: str = NIGHTLY_CRON

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the tables' upkeep."""
        knobs = self.model_dump(include={"min_small_files", "target_file_bytes", "engine"})
        words = self.model_dump(include={"name", "layer", "writers", "orphans", "vacuum_cron"})
        return maintain(
            self.tables, compaction=Compaction(**knobs), base=context.project_root, **words
        )
