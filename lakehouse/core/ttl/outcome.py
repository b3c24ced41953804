"""The outcome of a TTL run, next to its plan."""

from dataclasses import dataclass
from typing import Any

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.costs.predicted_and_actual import Figure, figures_as_json
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.delta.commits import Commit
from lakehouse.core.ttl.plan import TtlPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlOutcome:
    """What a run deleted, according to its commits."""

    plan: TtlPlan
    commits: tuple[Commit, ...]
    seconds: float
    prices: Prices

    @property
    def deleted_rows(self) -> int | None:
        """The number of rows that the commits deleted; `None` if a commit does not record it."""
        counts = [commit.metrics.get("numDeletedRows", "") for commit in self.commits]
        if not all(count.isdigit() for count in counts):
            return None
        return sum(int(count) for count in counts)

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and actual figures. Rows are predicted only if the prediction is exact."""
        plan = self.plan
        is_exact = plan.least_rows == plan.most_rows
        usd = run_price(self.prices, seconds=self.seconds)
        return (
            Figure("rows", plan.least_rows if is_exact else None, self.deleted_rows),
            Figure("commits", len(plan.steps), len(self.commits)),
            Figure("seconds", round(plan.seconds, 3), round(self.seconds, 3)),
            Figure("usd", round(plan.usd, 9), round(usd, 9)),
        )

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON document, with the outcome."""
        return {
            **self.plan.as_json(),
            "version_after": self.commits[-1].version if self.commits else None,
            "actual_rows": self.deleted_rows,
            "actual_seconds": round(self.seconds, 3),
            "figures": figures_as_json(self.figures),
        }
