"""The outcome of a vacuum, compared with its plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.costs.predicted_and_actual import Figure, figures_as_json
from lakehouse.core.journal_records import VacuumRecord
from lakehouse.core.vacuum.facts import SECONDS_PER_PAGE
from lakehouse.core.vacuum.plan import VacuumPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOutcome:
    """A vacuum's plan, and its record in the journal.

    `spared` and `failed` contain the planned files that were not deleted, each with the reason.
    """

    plan: VacuumPlan
    record: VacuumRecord
    spared: Mapping[str, str] = field(default_factory=dict[str, str])
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and actual figures."""
        plan = self.plan
        record = self.record
        return (
            Figure("files", plan.file_count, record.deleted_files),
            Figure("bytes", plan.size_bytes, record.deleted_bytes),
            Figure("requests", sum(plan.requests.values()), sum(record.requests.values())),
            Figure("seconds", round(plan.seconds, 3), round(record.seconds, 3)),
            Figure("usd", round(plan.usd, 9), round(record.usd, 9)),
        )

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON document, plus the actual figures with the prefix `actual_`."""
        record = self.record
        return {
            **self.plan.as_json(),
            "figures": figures_as_json(self.figures),
            "actual_files": record.deleted_files,
            "actual_bytes": record.deleted_bytes,
            "actual_is_at_most": record.is_at_most,
            "actual_requests": dict(record.requests),
            "actual_seconds": round(record.seconds, 3),
            "actual_usd": round(record.usd, 9),
            "spared": dict(self.spared),
            "failed": dict(self.failed),
            "spared_files": len(self.spared),
            "failed_files": len(self.failed),
            "list_requests_saved": record.lists_saved,
            "list_seconds_saved": round(record.lists_saved * SECONDS_PER_PAGE, 3),
        }
