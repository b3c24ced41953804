"""The outcomes of an archive run and of a TTL run, next to their plans."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.archive.plan import ArchivePlan
from lakehouse.core.archive.records import ArchiveOperation
from lakehouse.core.archive.ttl_plan import TtlPlan
from lakehouse.core.costs.compaction_estimate import price
from lakehouse.core.costs.figures import Figure, figures_as_json
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import Commit


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOutcome:
    """What an archive run did; `operation` and `version_after` are `None` if nothing moved."""

    plan: ArchivePlan
    operation: ArchiveOperation | None = None
    version_after: int | None = None
    seconds: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and actual figures."""
        plan, operation = self.plan, self.operation
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlOutcome:
    """What a run deleted, according to its commits."""

    plan: TtlPlan
    commits: tuple[Commit, ...]
    seconds: float
    prices: Prices

    @property
    def deleted_rows(self) -> int | None:
        """The rows that the commits deleted; `None` if a commit does not record them."""
        counts = [commit.metrics.get("numDeletedRows", "") for commit in self.commits]
        if not all(count.isdigit() for count in counts):
            return None
        return sum(map(int, counts))

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and actual figures. Rows are predicted only if the prediction is exact."""
        plan = self.plan
        is_exact = plan.least_rows == plan.most_rows
        usd = price(self.prices, seconds=self.seconds)
        return (
            Figure("rows", plan.least_rows if is_exact else None, self.deleted_rows),
            Figure("commits", len(plan.steps), len(self.commits)),
            Figure("seconds", round(plan.seconds, 3), round(self.seconds, 3)),
            Figure("usd", round(plan.usd, 9), round(usd, 9)),
        )

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON shape, and the outcome."""
        return {
            **self.plan.as_json(),
            "version_after": self.commits[-1].version if self.commits else None,
            "actual_rows": self.deleted_rows,
            "actual_seconds": round(self.seconds, 3),
            "figures": figures_as_json(self.figures),
        }
