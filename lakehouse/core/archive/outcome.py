"""The outcome of an archive run, compared with its plan."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.archive.plan import ArchivePlan
from lakehouse.core.archive.records import ArchiveOperation
from lakehouse.core.costs.predicted_and_actual import Figure, figures_as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOutcome:
    """The result of an archive run.

    `operation` is the record of the move, and `version_after` the version of the table's commit.
    Both are `None` if nothing moved.
    """

    plan: ArchivePlan
    operation: ArchiveOperation | None = None
    version_after: int | None = None
    seconds: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and actual figures."""
        plan = self.plan
        operation = self.operation
        files = 0 if operation is None else len(operation.sources)
        rows = 0 if operation is None else operation.row_count
        return (
            Figure("files", plan.file_count, files),
            Figure("rows", plan.row_count, rows),
            Figure("requests", sum(plan.estimate.requests.values()), sum(self.requests.values())),
            Figure("seconds", round(plan.estimate.seconds, 3), round(self.seconds, 3)),
        )

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON shape, plus the actual figures with the prefix `actual_`."""
        operation = self.operation
        return {
            **self.plan.as_json(),
            "figures": figures_as_json(self.figures),
            "version_after": self.version_after,
            "actual_files": 0 if operation is None else len(operation.sources),
            "actual_rows": 0 if operation is None else operation.row_count,
            "actual_bytes": 0 if operation is None else operation.size_bytes,
            "actual_seconds": round(self.seconds, 3),
            "actual_requests": dict(self.requests),
        }
