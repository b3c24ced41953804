"""Whether a table's compaction pays, by scans that were measured before and after it; and how long it is left alone where it does not.

The gain of a pair of scans is their ratio, so that a cause that slows both does not count. Probes of several compactions are put together
before anything follows from them.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import exp, log, sqrt
from statistics import fmean, median, stdev
from typing import Any, Literal

from lakehouse.core.costs.estimate import SECONDS_PER_OPENING
from lakehouse.core.costs.ledger import Account
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.units import HOUR_MS

# One of so many compactions is probed, for at most this share of the seconds that all of them took.
PROBE_EVERY = 10
PROBE_SHARE = 0.1

# So many of the newest probes are put together; from so many on, a gain under this share is none.
_PROBES, _LEAST_PROBES = 5, 3
_LEAST_GAIN = 0.02
_FIRST_HOURS, _MOST_HOURS = 6, 168
# Two-sided 90 % quantiles of Student's t for 1, 2, ... degrees of freedom; beyond them the last, which is on the safe side.
_T = (6.31, 2.92, 2.35, 2.13, 2.02, 1.94, 1.89, 1.86, 1.83, 1.81)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The time saved, as a share of the time before, with the interval that holds it in nine of ten cases; below 0 is slower."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The seconds of scans before and after one compaction, pair by pair; no pairs where none fitted into the budget, or the scans failed.

    The second scan of each pair opens `openings_saved` files less; an older program did not write that down (0).
    """

    table: str
    version_before: int
    version_after: int
    measured_ms: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    spent_seconds: float
    budget_seconds: float
    openings_saved: int = 0

    @property
    def before_seconds(self) -> float:
        """The median scan of the version before; 0 where there was none."""
        return median(self.before or (0.0,))

    @property
    def after_seconds(self) -> float:
        """The median scan of the version after; 0 where there was none."""
        return median(self.after or (0.0,))

    @property
    def gain(self) -> Gain | None:
        """The gain of the compaction, `None` (unknown) by fewer than two pairs."""
        return gain_of(self.before, self.after)

    @property
    def sentence(self) -> str:
        """The probe in one line."""
        gain, spent = self.gain, f"{self.spent_seconds:.1f} of {self.budget_seconds:.1f} s spent"
        if gain is None:
            return f"{len(self.before)} pair(s) of scans say nothing; {spent}"
        times = f"{self.before_seconds:.3f} s before, {self.after_seconds:.3f} s after"
        return f"scan {times}: {gain.share:.1%} faster ({gain.low:.1%} to {gain.high:.1%}) by {len(self.before)} pair(s), {spent}"

    def as_json(self) -> dict[str, Any]:
        """The journal's shape; `probe_from` reads it."""
        gain = self.gain
        return {
            **asdict(self),
            "before_seconds": round(self.before_seconds, 4),
            "after_seconds": round(self.after_seconds, 4),
            "gained_share": round(gain.share, 4) if gain else None,
            "low_share": round(gain.low, 4) if gain else None,
            "high_share": round(gain.high, 4) if gain else None,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Benefit(Explained):
    """The verdict over the newest probes of a table."""

    verdict: Literal["pays", "does not pay", "not known"]
    gain: Gain | None = None


def probe_from(document: dict[str, Any]) -> Probe:
    """A probe as the journal holds it; KeyError or TypeError where it is none."""
    known: dict[str, Any] = {
        each.name: document[each.name] for each in fields(Probe) if each.name in document
    }
    known.update(before=tuple(known["before"]), after=tuple(known["after"]))
    return Probe(**known)


def gain_of(before: Sequence[float], after: Sequence[float]) -> Gain | None:
    """The gain by pairs of scans; `None` (unknown) by fewer than two pairs."""
    ratios = [
        log(second / first)
        for first, second in zip(before, after, strict=True)
        if first > 0 and second > 0
    ]
    if len(ratios) < 2:
        return None
    middle = fmean(ratios)
    half = _T[min(len(ratios) - 1, len(_T)) - 1] * stdev(ratios) / sqrt(len(ratios))
    return Gain(share=1 - exp(middle), low=1 - exp(middle + half), high=1 - exp(middle - half))


def probe_budget_seconds(
    account: Account, compaction_seconds: float, probes: Sequence[Probe]
) -> float:
    """The seconds for which the newest compaction of `account`, which took `compaction_seconds`, may be probed: 0 is not at all.

    Every tenth of ours is probed, for a tenth of the seconds of the ten. Where compaction does not pay, each one is: they are rare
    then, and each may turn the verdict. None is after a probe that said nothing: its scan may be what kills the server.
    """
    if _since_last_probe(account, probes) >= PROBE_EVERY or (
        _told(probes[-1:]) and assess_benefit(probes).verdict == "does not pay"
    ):
        return PROBE_EVERY * PROBE_SHARE * compaction_seconds
    return 0.0


def measure_opening(probes: Sequence[Probe]) -> float:
    """Seconds that one opening of a file takes here, 0 where scans gained nothing; the default by fewer than three probes."""
    told = [probe for probe in _told(probes) if probe.openings_saved]
    if len(told) < _LEAST_PROBES:
        return SECONDS_PER_OPENING
    gained = sum(probe.before_seconds - probe.after_seconds for probe in told)
    return max(0.0, gained / sum(probe.openings_saved for probe in told))


def assess_benefit(probes: Sequence[Probe]) -> Benefit:
    """Whether compaction pays, by the newest probes; `probes` come oldest first."""
    newest = _told(probes)[-_PROBES:]
    gain = gain_of(
        [seconds for probe in newest for seconds in probe.before],
        [seconds for probe in newest for seconds in probe.after],
    )
    if gain is None:
        return Benefit(
            verdict="not known",
            explanation=Reason.NOT_PROBED.explain(probes=len(newest), every=PROBE_EVERY),
        )
    if gain.low > 0 and gain.share >= _LEAST_GAIN:
        verdict, reason = "pays", Reason.PROBES_PAY
    elif gain.high < _LEAST_GAIN and len(newest) >= _LEAST_PROBES:
        verdict, reason = "does not pay", Reason.PROBES_DO_NOT_PAY
    else:
        verdict, reason = "not known", Reason.PROBES_UNDECIDED
    shares = {
        "gained": f"{gain.share:.1%}",
        "low": f"{gain.low:.1%}",
        "high": f"{gain.high:.1%}",
        "least": f"{_LEAST_GAIN:.0%}",
    }
    return Benefit(
        verdict=verdict,
        explanation=reason.explain(probes=len(newest), wanted=_LEAST_PROBES, **shares),
        gain=gain,
    )


def backoff_until_ms(probes: Sequence[Probe]) -> int | None:
    """The time until which the table is left alone; `None`: compaction pays, or nobody knows.

    Six hours after the probe that turned the verdict, twice as long after each further one that leaves it, a week at most.
    """
    told, useless = _told(probes), 0
    while (
        useless < len(told)
        and assess_benefit(told[: len(told) - useless]).verdict == "does not pay"
    ):
        useless += 1
    hours = min(_FIRST_HOURS * 2 ** min(useless - 1, 10), _MOST_HOURS)
    return told[-1].measured_ms + hours * HOUR_MS if useless else None


def explain_backoff(until_ms: int, why: str, now_ms: int) -> Explanation | None:
    """Why the table is left alone until `until_ms`; `None` where that time has come."""
    return (
        Reason.BACKED_OFF.explain(hours=f"{(until_ms - now_ms) / HOUR_MS:.1f}", why=why)
        if now_ms < until_ms
        else None
    )


def _told(probes: Sequence[Probe]) -> list[Probe]:
    return [probe for probe in probes if probe.gain is not None]


def _since_last_probe(account: Account, probes: Sequence[Probe]) -> float:
    """Our compactions since the last probe; where the log does not go back to it, their number by their mean distance in the log."""
    ours = [
        entry.compaction.version
        for entry in account.entries
        if entry.compaction.predicted is not None
    ]
    if not ours:
        return 0
    newest = ours[-1]
    # A table that was made anew counts its versions anew; the probes of the old one lie ahead of it.
    probed = max(
        (probe.version_after for probe in probes if probe.version_after < newest), default=-1
    )
    if probed >= account.first_version - 1:
        return sum(version > probed for version in ours)
    distance = (
        (newest - ours[0]) / (len(ours) - 1)
        if len(ours) > 1
        else newest - account.first_version + 1
    )
    return (newest - probed) / distance
