"""What the lake records about the upkeep of its tables: ended operations, and pauses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lakehouse.base.operation import Figure
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.base.text import utc_text
from lakehouse.declare.policies import VacuumMode

# A vacuum's record names at most this many failed and this many kept files, so that it stays small
# even if all deletions fail. Later vacuums read the record.
FAILED_NAMED = 1_000


OperationResult = Literal["succeeded", "failed", "conflict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepOperation:
    """One ended upkeep operation: a row of `_lakehouse/operations`. `None` means unknown.

    - `kind`: compaction, vacuum, archive, restore or ttl.
    - `operation_id`: unique for each table and kind.
    - `result`: `conflict` is a compaction that lost its commit to another writer.
    - `reason`: the name of the plan's reason; empty if unknown. `why`: the error of a failure.
    - `run`: `run <id of the Dagster run>`, or a random id outside Dagster.
    - `by_person`: a person requested a compaction. It can close the circuit breaker, but never
      opens it.
    - `seconds`, `vcpu_seconds`, `usd`: actual figures. `requests`: the counted requests by method.
    - `detail`: what else operations of this kind record, as JSON values.
    """

    table: str
    kind: str
    operation_id: str
    ended_ms: int
    started_ms: int | None = None
    result: OperationResult = "succeeded"
    reason: str = ""
    why: str = ""
    run: str = ""
    by_person: bool = False
    seconds: float | None = None
    vcpu_seconds: float | None = None
    requests: Mapping[str, int] = field(default_factory=dict[str, int])
    usd: float | None = None
    figures: tuple[Figure, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def wasted_bytes(self) -> int:
        """The planned bytes that a compaction wasted if it did not succeed."""
        return self.detail.get("bytes_rewritten", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumRecord:
    """What later vacuums need to know of a vacuum: the `detail` of its operation.

    - `horizon_ms`: the vacuum's plan covers files that were removed before this time.
    - `failed`: the reason by file name, for at most `FAILED_NAMED` files.
    - `is_complete`: the vacuum ended without an error, and `failed` and `kept` name all their
      files.
    - `kept`: files that this vacuum did not delete, and that a later vacuum without a listing must
      consider again: in mode LITE, those that only a kept version needs. If only the log decides
      (`orphans="keep"`), also those that another table reads, and all spared files.
    - `table_id`: the table's id, which changes if the table is created again.
    - `committed_ms`: when `version` was committed.
    """

    started_ms: int
    ended_ms: int
    mode: VacuumMode
    version: int
    horizon_ms: int
    usd: float = 0.0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    is_complete: bool = True
    kept: Sequence[str] = ()
    table_id: str = ""
    committed_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A pause of a table's upkeep that a person requested.

    The pause ends at `until_ms` or, if `until_ms` is `None`, when a person resumes the table.
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
        if self.until_ms is None:
            until = f"until you run lakehouse resume {self.table}"
        else:
            until = f"until {utc_text(self.until_ms)}"
        return Reason.PAUSED.explain(
            since=self.since_ms, until=until, why=f": {self.why}" if self.why else ""
        )
