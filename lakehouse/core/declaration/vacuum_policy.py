"""What a declaration says of a table's vacuum."""

from collections.abc import Mapping
from dataclasses import InitVar, dataclass
from math import inf
from typing import Literal

from lakehouse.core.delta.retention import RETENTION, span_ms_of
from lakehouse.core.errors import Refused

# Source: Delta's default, and the shortest that it takes without an override: DeltaLog.tombstoneRetentionMillis, one week.
SAFE_RETENTION_HOURS = 168
# The property is written in whole minutes.
_LEAST_HOURS = 1 / 60
# Who declares less writes this sentence down, and nothing else does.
SHORT_RETENTION_RISK = "readers and writers that take longer than the retention lose their files"
VACUUM_MODES = ("LITE", "INVENTORY", "FULL")
_LOG_RETENTION = "delta.logRetentionDuration"
# Source: Delta's default.
_DEFAULT_LOG_RETENTION, _HOUR_MS = "interval 30 days", 3_600_000
_NUMBERS = {"retention_hours": 0, "sweep_hours": 0, "max_report_hours": 0, "min_reclaimable_bytes": 0, "max_deletes_per_second": 1}
type_of_mode = Literal["LITE", "INVENTORY", "FULL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """What is deleted of a table, and when; `docs/knobs.md` has a line for each knob.

    `retention_hours` 0 leaves the table's own property alone; else it is `delta.deletedFileRetentionDuration`, and under a week only
    with `accepts_short_retention` set to `SHORT_RETENTION_RISK`. `sweep_hours`: so often storage is looked through for what no log has.
    `deleter` was a knob once; declarations that name it are told what to do.
    """

    mode: Literal["automatic", "recommend", "off"] = "automatic"
    retention_hours: float = 0
    accepts_short_retention: str = ""
    sweep_hours: float = 24
    max_report_hours: float = 26
    min_reclaimable_bytes: int = 0
    after_compaction: bool = False
    max_deletes_per_second: int = 3_000
    deleter: InitVar[str] = "lakehouse"

    def __post_init__(self, deleter: str) -> None:
        if self.mode not in ("automatic", "recommend", "off"):
            raise Refused(f"Vacuum.mode is {self.mode!r}; accepted: automatic, recommend, off")
        if deleter != "lakehouse":
            raise Refused(f"Vacuum.deleter is {deleter!r}; accepted: no deleter, since lakehouse itself deletes what Delta gives up, too")
        if self.after_compaction not in (True, False):
            raise Refused(f"Vacuum.after_compaction is {self.after_compaction!r}; accepted: True, False")
        for name, least in _NUMBERS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < inf:
                raise Refused(f"Vacuum.{name} is {value!r}; accepted: a number, {least} or more")
        if 0 < self.retention_hours < _LEAST_HOURS:
            raise Refused(f"Vacuum.retention_hours is {self.retention_hours!r}, under a minute; accepted: 0, or a minute (1/60) or more")
        if 0 < self.retention_hours < SAFE_RETENTION_HOURS and not self.accepts_risk:
            raise Refused(
                f"Vacuum.retention_hours is {self.retention_hours:g}, under a week ({SAFE_RETENTION_HOURS}); accepted with "
                f"accepts_short_retention={SHORT_RETENTION_RISK!r} beside it"
            )
        if self.accepts_short_retention and not self.accepts_risk:
            raise Refused(f"Vacuum.accepts_short_retention is {self.accepts_short_retention!r}; accepted: {SHORT_RETENTION_RISK!r}")

    @property
    def accepts_risk(self) -> bool:
        """Whether a retention under a week was acknowledged."""
        return self.accepts_short_retention == SHORT_RETENTION_RISK

    def properties(self) -> dict[str, str]:
        """The table property that it needs."""
        return {RETENTION: self._span} if self.retention_hours else {}

    def properties_beside(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The same, and the log's retention where a table of these `properties` keeps it for a shorter time, or one that is unknown."""
        log_ms = span_ms_of(properties.get(_LOG_RETENTION, _DEFAULT_LOG_RETENTION))
        grows = bool(self.retention_hours) and (log_ms is None or log_ms < self.retention_hours * _HOUR_MS)
        return {**self.properties(), **({_LOG_RETENTION: self._span} if grows else {})}

    @property
    def _span(self) -> str:
        return f"interval {round(self.retention_hours * 60)} minutes"
