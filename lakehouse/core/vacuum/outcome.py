"""What a vacuum really did, beside its plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.vacuum.facts import PastVacuum
from lakehouse.core.vacuum.plan import VacuumPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOutcome:
    """What a vacuum did, as the journal has it, beside its plan; `spared` and `failed` are files of the plan that stayed, and why."""

    plan: VacuumPlan
    past: PastVacuum
    spared: Mapping[str, str] = field(default_factory=dict[str, str])
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_json(self) -> dict[str, Any]:
        """The plan's shape, and the actual figures under the same names with the prefix `actual_`."""
        past = self.past
        return {
            **self.plan.as_json(),
            "actual_files": past.deleted_files,
            "actual_bytes": past.deleted_bytes,
            "actual_is_at_most": past.is_at_most,
            "actual_requests": dict(past.requests),
            "actual_seconds": round(past.seconds, 3),
            "actual_usd": round(past.usd, 9),
            "spared": dict(self.spared),
            "failed": dict(self.failed),
            "spared_files": len(self.spared),
            "failed_files": len(self.failed),
            "list_requests_saved": past.lists_saved,
            "list_seconds_saved": round(past.list_seconds_saved, 3),
        }
