"""The declaration of a table's vacuum."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from lakehouse.base.errors import Refused
from lakehouse.base.text import HOUR_MS
from lakehouse.declare.knobs import (
    AMOUNT,
    YES_OR_NO,
    Accepts,
    check_knobs,
    knob,
    one_of,
    tuple_of,
    whole,
)
from lakehouse.delta.protocol import RETENTION, span_ms_of

# Delta's default retention. Its documentation recommends at least this.
# Source: delta-io/delta, DeltaLog.tombstoneRetentionMillis.
SAFE_RETENTION_HOURS = 168
# One minute is the shortest retention, because the property is set in whole minutes.
_LEAST_HOURS = 1 / 60
# A declaration with a retention under `SAFE_RETENTION_HOURS` must include this sentence.
SHORT_RETENTION_RISK = "readers and writers that take longer than the retention lose their files"
_EMPTY_OR_RISK = Accepts(
    repr(SHORT_RETENTION_RISK), lambda value: value in ("", SHORT_RETENTION_RISK)
)
_VERSIONS = Accepts(
    "a tuple of whole numbers, 0 or more",
    lambda value: tuple_of(int).test(value) and all(whole(0).test(each) for each in value),
)
LOG_RETENTION = "delta.logRetentionDuration"
# Source: Delta's default.
DEFAULT_LOG_DAYS = 30
DEFAULT_LOG_RETENTION = f"interval {DEFAULT_LOG_DAYS} days"
# How a vacuum finds the files. The knob `mode` is something else.
VacuumMode = Literal["LITE", "INVENTORY", "FULL"]
VACUUM_MODES: tuple[VacuumMode, ...] = get_args(VacuumMode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vacuum:
    """A table's vacuum knobs."""

    mode: Literal["automatic", "recommend", "off"] = knob(
        "automatic",
        one_of("automatic", "recommend", "off"),
        '`"recommend"`: a vacuum runs only if a person starts it. `"off"`: nothing runs without'
        " `--anyway`",
    )
    retention_hours: float = knob(
        0,
        AMOUNT,
        "how many hours removed files are kept, at least a minute. Sets"
        " `delta.deletedFileRetentionDuration`, and raises `delta.logRetentionDuration` if it is"
        " shorter. 0: the table's own property",
    )
    accepts_short_retention: str = knob(
        "",
        _EMPTY_OR_RISK,
        "permits a retention under a week. Must be exactly the sentence that the refusal of such a"
        " retention shows",
    )
    after_compaction: bool = knob(
        False, YES_OR_NO, "a vacuum also follows each compaction of the table"
    )
    keep_versions: tuple[int, ...] = knob(
        (), _VERSIONS, "versions whose files a vacuum keeps, whatever their age"
    )
    tiers: bool = knob(
        False,
        YES_OR_NO,
        "each night, removed files that stay for more than a month get a tag, by which a lifecycle"
        " rule of the bucket moves them to cheaper classes ([tiers](tiers.md))",
    )

    def __post_init__(self) -> None:
        check_knobs(self)
        if 0 < self.retention_hours < _LEAST_HOURS:
            raise Refused(
                f"Vacuum.retention_hours is {self.retention_hours!r}, under a minute. Use 0, or at"
                " least 1/60 (a minute)."
            )
        if 0 < self.retention_hours < SAFE_RETENTION_HOURS and not self.accepts_short_retention:
            raise Refused(
                f"Vacuum.retention_hours is {self.retention_hours:g}, under a week"
                f" ({SAFE_RETENTION_HOURS}). To accept the risk, add"
                f" accepts_short_retention={SHORT_RETENTION_RISK!r}."
            )

    def retention_properties(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties to set for the retention on a table that has these `properties` now.

        They include the log's retention if that of the table is shorter, or cannot be parsed.
        """
        if not self.retention_hours:
            return {}
        span = f"interval {round(self.retention_hours * 60)} minutes"
        log_ms = span_ms_of(properties.get(LOG_RETENTION, DEFAULT_LOG_RETENTION))
        if log_ms is None or log_ms < self.retention_hours * HOUR_MS:
            return {RETENTION: span, LOG_RETENTION: span}
        return {RETENTION: span}
