"""The journal's records about the upkeep of a table: failed compactions, and pauses."""

from dataclasses import dataclass
from typing import Literal

from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.text import utc_text

# The journal keeps this many failed compactions of each table, so that listing them stays cheap.
FAILURES_KEPT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTry:
    """A compaction that ended.

    `run` is the id of its Dagster run, if any. `why` is the error of a failed compaction. A
    compaction that a person requested (`by_person`) can close the circuit breaker, but never opens
    it.
    """

    ended_ms: int
    result: Literal["succeeded", "failed", "conflict"]
    bytes_rewritten: int = 0
    files_rewritten: int = 0
    seconds: float = 0.0
    why: str = ""
    run: str = ""
    by_person: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person's pause of the upkeep of a table.

    It ends at `until_ms` or, if that is `None`, when a person resumes the table.
    """

    table: str
    since_ms: int
    until_ms: int | None = None
    why: str = ""

    def holds(self, now_ms: int) -> bool:
        """Whether the pause is still in force at `now_ms`."""
        return self.until_ms is None or now_ms < self.until_ms

    @property
    def explanation(self) -> Explanation:
        """The pause as a reason, with its start, its end and the person's own words."""
        until = (
            f"until {utc_text(self.until_ms)}"
            if self.until_ms is not None
            else f"until you run lakehouse resume {self.table}"
        )
        return Reason.PAUSED.explain(
            since=self.since_ms, until=until, why=f": {self.why}" if self.why else ""
        )
