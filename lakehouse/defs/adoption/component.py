"""A component for Dagster's `dg` that declares the upkeep of Delta tables in YAML."""

from typing import Any

import dagster as dg

from lakehouse.core.declaration.archive import Archive, Ttl
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.gone import GONE
from lakehouse.core.declaration.knobs import declared_as
from lakehouse.core.errors import Refused
from lakehouse.defs.adoption.maintain import maintain
from lakehouse.defs.upkeep import NIGHTLY_CRON


class MaintainedTablesScaffolder(dg.Scaffolder[Any]):
    """Writes a `defs.yaml` with an example table for the user to replace."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Writes the file for a new component."""
        dg.scaffold_component(
            request,
            {"tables": {"sales/orders": "s3://warehouse/sales/orders"}},
        )


@dg.scaffold_with(MaintainedTablesScaffolder)
class MaintainedTables(dg.Component, dg.Model, dg.Resolvable):
    """Compaction, vacuum, checks and sensors for Delta tables that other assets write.

    `tables` maps asset keys to addresses. Relative addresses are resolved against the project's
    root. `engine`, `min_small_files` and `target_file_bytes` are knobs of `Compaction`; for the
    last two, 0 stands for the default. `archive` and `ttl` map the knobs of `Archive` and `Ttl` to
    their values. The other fields are parameters of `lakehouse.maintain`.
    """

    tables: dict[str, str]
    name: str = "maintenance"
    layer: str = "silver"
    orphans: str = "keep"
    writers: str | None = None
    min_small_files: int = 0
    target_file_bytes: int = 0
    engine: str = "auto"
    archive: dict[str, str | int] | None = None
    ttl: dict[str, str | int] | None = None
    vacuum_cron: str = NIGHTLY_CRON

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the tables' upkeep."""
        if self.writers is not None:
            raise Refused(f"MaintainedTables: writers is gone. {GONE['MaintainedTables.writers']}")
        knobs = self.model_dump(include={"min_small_files", "target_file_bytes", "engine"})
        options = self.model_dump(include={"name", "layer", "orphans", "vacuum_cron"})
        return maintain(
            self.tables,
            compaction=Compaction(**knobs),
            archive=None if self.archive is None else declared_as(Archive, self.archive),
            ttl=None if self.ttl is None else declared_as(Ttl, self.ttl),
            base=context.project_root,
            **options,
        )
