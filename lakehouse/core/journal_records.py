"""The journal's records about the upkeep of a table: compactions, vacuums and pauses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lakehouse.core.declaration.vacuum_policy import VacuumMode
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.core.text import utc_text

# The journal keeps this many failed compactions of each table, so that listing them stays cheap.
FAILURES_KEPT = 100
# Bounds the size of a vacuum's record if all deletions fail, because each later vacuum reads it.
FAILED_NAMED = 1_000


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
class VacuumRecord:
    """One vacuum of a table, as the journal stores it.

    - `horizon_ms`: the vacuum's plan covers files that were removed before this time.
    - `predicted_…`: the plan's figures.
    - `spared`: the number of files that Delta or the last check kept.
    - `failed`: the reason by file name, for at most `FAILED_NAMED` files.
    - `is_complete`: every file past the retention was considered. It is false after an error, if
      more files failed than `failed` names, if there was too little to delete, or if there were
      more files than one vacuum deletes.
    - `kept`: files that no later listing finds, so that the next vacuum reads them from here. In
      mode LITE, these are files that were kept for a version. If the log alone decides, they
      include files that another table reads or that Delta would not delete.
    - `is_at_most`: some of the deleted files may not have existed, which S3 does not report.
    - `table_id`: the table's identity.
    - `committed_ms`: when `version` was committed.
    """

    started_ms: int
    ended_ms: int
    mode: VacuumMode
    report: str
    version: int
    horizon_ms: int
    predicted_files: int
    predicted_bytes: int
    predicted_requests: int
    predicted_seconds: float
    predicted_usd: float
    deleted_files: int
    deleted_bytes: int
    spared: int
    requests: Mapping[str, int] = field(default_factory=dict[str, int])
    seconds: float = 0.0
    usd: float = 0.0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    lists_saved: int = 0
    is_complete: bool = True
    is_at_most: bool = False
    kept: Sequence[str] = ()
    run: str = ""
    table_id: str = ""
    committed_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a table's upkeep that a person requested.

    The pause ends at `until_ms`. If that is `None`, it ends when a person resumes the table.
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
