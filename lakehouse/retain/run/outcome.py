"""What a run of an archive, a restore or a TTL did, and its operation in the lake's history."""

from dataclasses import dataclass
from typing import Any

from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Figure, figures_as_json
from lakehouse.base.reasons import Explained
from lakehouse.compact.plan.estimate import run_price
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import UpkeepOperation
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import record_if_possible
from lakehouse.retain.plan.archive import ArchivePlan, RestorePlan
from lakehouse.retain.plan.ttl import TtlPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOutcome:
    """A run's plan and its figures. `version_after` is `None` if the table did not change."""

    plan: ArchivePlan | RestorePlan | TtlPlan
    version_after: int | None = None
    figures: tuple[Figure, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON document, with the outcome."""
        return {
            **self.plan.as_json(),
            "version_after": self.version_after,
            "figures": figures_as_json(self.figures),
        }


def record_moved_rows(lake: Lake, table: Table, kind: str, outcome: RetentionOutcome) -> None:
    """Adds an operation of this kind, unless it committed nothing. Its figures have the seconds."""
    if outcome.version_after is None:
        return
    seconds = next(each.actual for each in outcome.figures if each.name == "seconds") or 0.0
    ended_ms = now_ms()
    operation = UpkeepOperation(
        table=table.key,
        kind=kind,
        operation_id=f"version-{outcome.version_after}",
        started_ms=ended_ms - int(seconds * 1000),
        ended_ms=ended_ms,
        reason=outcome.plan.reason.name if isinstance(outcome.plan, Explained) else "",
        seconds=seconds,
        vcpu_seconds=seconds * table.prices.vcpus,
        usd=run_price(table.prices, seconds=seconds),
        figures=outcome.figures,
    )
    record_if_possible(lake, operation)
