"""The same upkeep as a Dagster Component: a project's `defs.yaml` names its tables, and writes no code."""

from typing import Any

import dagster as dg

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.defs.adoption.maintain import VACUUM_CRON, maintain


class MaintainedTablesScaffolder(dg.Scaffolder[Any]):
    """Writes a `defs.yaml` in which one line has to be changed."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Writes it."""
        dg.scaffold_component(request, {"tables": {"sales/orders": "s3://warehouse/sales/orders"}, "writers": "unknown"})


@dg.scaffold_with(MaintainedTablesScaffolder)
class MaintainedTables(dg.Component, dg.Model, dg.Resolvable):
    """Compaction, vacuum, checks and sensors for Delta tables that other assets write.

    `tables` are asset keys with the addresses of their tables; relative ones start at the project's root. The other words are those of
    `lakehouse.maintain`; `min_small_files` and `target_file_bytes` are the knobs that a person turns first, 0 leaves the layer's.
    """

    tables: dict[str, str]
    name: str = "maintenance"
    layer: str = "silver"
    writers: str = "unknown"
    orphans: str = "keep"
    min_small_files: int = 0
    target_file_bytes: int = 0
    vacuum_cron: str = VACUUM_CRON

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the tables' upkeep."""
        return maintain(
            self.tables,
            name=self.name,
            layer=self.layer,
            writers=self.writers,  # type: ignore[arg-type]  # what is not accepted is refused by name
            orphans=self.orphans,  # type: ignore[arg-type]
            compaction=Compaction(min_small_files=self.min_small_files, target_file_bytes=self.target_file_bytes),
            vacuum_cron=self.vacuum_cron,
            base=context.project_root,
        )
