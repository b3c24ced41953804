"""How a compaction is checked after its commit: by every row, or by the log's account of the rows; and the price of the first."""

from dataclasses import dataclass
from typing import Literal

from lakehouse.core.costs.estimate import Estimate
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.reasons import Explanation, Reason

type_of_comparison = Literal["content", "rows"]
# So much a run rewrites by default (`max_bytes_per_run`): who leaves both as they are has every row compared.
COMPARED_BYTES = 16 * 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A comparison that found no difference: of every row (`content`), or of the log's row counts and statistics (`rows`)."""

    by: type_of_comparison
    row_count: int


def choose_comparison(policy: Compaction, bytes_removed: int) -> type_of_comparison:
    """How a compaction that rewrites so many bytes is checked."""
    if policy.verify == "automatic":
        return "content" if bytes_removed <= COMPARED_BYTES else "rows"
    return policy.verify


def explain_comparison(policy: Compaction, bytes_removed: int, estimate: Estimate) -> Explanation:
    """Why it is checked so, with the price of the comparison of every row."""
    numbers = {
        "said": f'verify="{policy.verify}"',
        "bytes": bytes_removed,
        "bound": COMPARED_BYTES,
        "seconds": f"{estimate.comparison_seconds:.1f}",
        "usd": f"{estimate.comparison_usd:.6f}",
    }
    if choose_comparison(policy, bytes_removed) == "content":
        return Explanation(Reason.CONTENT_COMPARED, numbers)
    return Explanation(Reason.ROWS_DECLARED if policy.verify == "rows" else Reason.TOO_LARGE_TO_COMPARE, numbers)
