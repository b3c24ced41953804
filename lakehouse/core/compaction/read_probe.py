"""A measured benefit: the same scan of a table before and after one compaction."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from statistics import median
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Durations of the same scan before and after a compaction, in seconds, pair by pair.

    There are no pairs if too few scans fitted into the budget.
    """

    table: str
    version_before: int
    version_after: int
    measured_ms: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    spent_seconds: float
    budget_seconds: float

    @property
    def before_seconds(self) -> float | None:
        """The median scan of the version before; `None` without a measurement."""
        return median(self.before) if self.before else None

    @property
    def after_seconds(self) -> float | None:
        """The median scan of the version after; `None` without a measurement."""
        return median(self.after) if self.after else None

    @property
    def gained_share(self) -> float | None:
        """The share of the scan's time that the compaction saved; negative if scans got slower."""
        if not self.before_seconds or self.after_seconds is None:
            return None
        return 1 - self.after_seconds / self.before_seconds

    @property
    def sentence(self) -> str:
        """The measurement in one line."""
        spent = f"{self.spent_seconds:.1f} of {self.budget_seconds:.0f} s spent"
        if self.gained_share is None:
            return f"the table is too large to be scanned often enough for a measurement; {spent}"
        return (
            f"scan {self.before_seconds:.3f} s before, {self.after_seconds:.3f} s after: "
            f"{abs(self.gained_share):.1%} {'faster' if self.gained_share >= 0 else 'slower'} "
            f"(medians of {len(self.before)} scans each; {spent})"
        )

    def as_json(self) -> dict[str, Any]:
        """The journal's shape; `probe_from` reads it."""
        medians = {
            "before_seconds": self.before_seconds,
            "after_seconds": self.after_seconds,
            "gained_share": self.gained_share,
        }
        rounded = {name: None if each is None else round(each, 4) for name, each in medians.items()}
        return {**asdict(self), **rounded, "sentence": self.sentence}


def probe_from(document: Mapping[str, Any]) -> Probe:
    """The probe in a journal record.

    Raises:
        KeyError, TypeError: the record holds no probe.
    """
    figures = {each.name: document[each.name] for each in fields(Probe)}
    figures["before"] = tuple(figures["before"])
    figures["after"] = tuple(figures["after"])
    return Probe(**figures)
