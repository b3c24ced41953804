"""Why a table is left alone: its declaration, a pause, a closed window, or a breaker that opened by itself.

The breaker of a table opens after trouble three times in a row, stays open for six hours, then lets one try through (half open): a success
closes it, further trouble opens it again for twice the time. Three things are trouble:

- a compaction failed, or lost a race for its commit
- the same bytes were rewritten for nothing, as `rewrite_loops` defines it
- a scan of the table took longer after a compaction than before it

The numbers of all three are few and small, so that a sensor can carry them without the log they came from.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Literal

from lakehouse.core.adoption.adopted import commits_at_risk
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.windows import is_open, next_opening, windows_text
from lakehouse.core.delta.commits import Commits
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.scheduling.rewrite_loops import Rewrites, is_ours
from lakehouse.core.text import utc_text
from lakehouse.core.units import HOUR_MS

# Tries of one version of a table, and troubles in a row, before it is left alone; as many probes say that compaction does not pay.
TRIES_ALLOWED = 3
# As long as the first pause of a table whose compactions do not pay: the next batch of a day finds it open again.
_HOURS = 6
# A table that failed for weeks is still tried now and then: 6 hours become 4 days at most.
_MOST_DOUBLINGS = 4
# Two scans of the same files on a shared machine differ by less than this; more is not chance.
_HARM_SHARE = 0.1
_WHY_LETTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTry:
    """A compaction that ended. `run` names the run that made it, where one did; `why` is the error of one that did not succeed."""

    ended_ms: int
    result: Literal["succeeded", "failed", "conflict"]
    bytes_rewritten: int = 0
    files_rewritten: int = 0
    seconds: float = 0.0
    why: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Seconds of the same scan before and after a compaction."""

    measured_ms: int
    before_seconds: float
    after_seconds: float

    @property
    def is_harm(self) -> bool:
        """Whether it got slower by more than chance explains."""
        return self.after_seconds > self.before_seconds * (1 + _HARM_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerState(Explained):
    """Whether a table may be compacted as far as its past says; `retry_at_ms` is when one try is let through (`None`: closed)."""

    position: Literal["closed", "open", "half open"]
    retry_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """A person's word that a table is to be left alone, until a time or (`None`) until it is resumed."""

    table: str
    since_ms: int
    until_ms: int | None = None
    why: str = ""

    def holds(self, now_ms: int) -> bool:
        """Whether it still does at `now_ms`."""
        return self.until_ms is None or now_ms < self.until_ms

    @property
    def explanation(self) -> Explanation:
        """The pause as a reason, with its begin, its end and the person's own words."""
        until = f"until {utc_text(self.until_ms)}" if self.until_ms is not None else f"until: lakehouse resume {self.table}"
        return Reason.PAUSED.explain(since=self.since_ms, until=until, why=f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    """How often in a row one kind of trouble came; from the limit on, the breaker is open."""

    reason: Reason
    count: int
    last_ms: int
    numbers: Mapping[str, object]

    @property
    def retry_at_ms(self) -> int:
        return self.last_ms + pause_hours(self.count) * HOUR_MS


def assess_breaker(tries: Iterable[CompactionTry], rewrites: Rewrites, now_ms: int, *, scans: Sequence[Scan] = ()) -> BreakerState:
    """The breaker of a table at `now_ms`. Tries and scans come in any order; one run's several tries count as its last.

    A time after `now_ms` comes from a clock that was set back since: it counts as long ago.
    """
    ended = _one_per_run(replace(each, ended_ms=_known_ms(each.ended_ms, now_ms)) for each in tries)
    measured = sorted((replace(each, measured_ms=_known_ms(each.measured_ms, now_ms)) for each in scans), key=lambda each: each.measured_ms)
    failed = list(takewhile(lambda each: each.result != "succeeded", reversed(ended)))
    harmed = list(takewhile(lambda each: each.is_harm, reversed(measured)))
    succeeded_ms = max((each.ended_ms for each in ended if each.result == "succeeded"), default=0)
    rewrites = replace(rewrites, last_ms=_known_ms(rewrites.last_ms, now_ms))
    troubles = list[_Trouble]()
    if len(failed) >= TRIES_ALLOWED:
        numbers = {
            "conflicts": sum(each.result == "conflict" for each in failed),
            "bytes": sum(each.bytes_rewritten for each in failed),
            "seconds": f"{sum(each.seconds for each in failed):.1f}",
            "why": _first_line(failed[0].why),
        }
        troubles.append(_Trouble(reason=Reason.BREAKER_OPEN, count=len(failed), last_ms=failed[0].ended_ms, numbers=numbers))
    if rewrites.times >= TRIES_ALLOWED:
        numbers = {"bytes": rewrites.bytes_rewritten, "version": rewrites.version}
        troubles.append(_Trouble(reason=Reason.REWRITE_LOOP, count=rewrites.times, last_ms=rewrites.last_ms, numbers=numbers))
    if len(harmed) >= TRIES_ALLOWED:
        numbers = {"before": f"{harmed[0].before_seconds:.3g}", "after": f"{harmed[0].after_seconds:.3g}"}
        troubles.append(_Trouble(reason=Reason.MEASURED_HARM, count=len(harmed), last_ms=harmed[0].measured_ms, numbers=numbers))
    held = [each for each in troubles if each.last_ms >= succeeded_ms]
    if not held:
        closed = Reason.BREAKER_CLOSED.explain(failures=len(failed), slower=len(harmed), times=rewrites.times, limit=TRIES_ALLOWED)
        return BreakerState(position="closed", explanation=closed)
    worst = max(held, key=lambda each: each.retry_at_ms)
    retry_at_ms, hours = worst.retry_at_ms, pause_hours(worst.count)
    explanation = worst.reason.explain(count=worst.count, limit=TRIES_ALLOWED, hours=hours, until=retry_at_ms, **worst.numbers)
    if now_ms < retry_at_ms:
        return BreakerState(position="open", explanation=explanation, retry_at_ms=retry_at_ms)
    half = Reason.HALF_OPEN.explain(retry_at=retry_at_ms, why=explanation.sentence)
    return BreakerState(position="half open", explanation=half, retry_at_ms=retry_at_ms)


def pause_hours(count: int) -> int:
    """How long a table is left alone after trouble `count` times in a row, `TRIES_ALLOWED` or more."""
    return _HOURS * 2 ** min(count - TRIES_ALLOWED, _MOST_DOUBLINGS)


def hold_back(
    table: str, policy: Compaction, pause: Pause | None, breaker: BreakerState | None, now_ms: int, *, write: object = None
) -> Explanation | None:
    """Why `table` is left alone at `now_ms` whatever it would gain; `None`: it may be compacted.

    A breaker that is half open lets a try through, and so does one that is not known (`None`). `write` says who writes the table.
    """
    if (risk := commits_at_risk(write)) is not None:
        return risk
    if (held := persons_hold_back(policy, pause, now_ms)) is not None:
        return held
    if policy.mode == "recommend":
        return Reason.RECOMMEND_ONLY.explain(mode=policy.mode, table=table)
    if breaker is not None and breaker.position == "open":
        return breaker.explanation
    return closed_window(policy, now_ms)


def closed_window(policy: Compaction, now_ms: int) -> Explanation | None:
    """The next opening of the policy's windows, as a reason to wait; `None` where one is open at `now_ms`, or there are none."""
    if is_open(policy.windows, now_ms):
        return None
    opens = next_opening(policy.windows, now_ms)
    return Reason.WINDOW_CLOSED.explain(now=now_ms, windows=windows_text(policy.windows), opens=opens)


def persons_hold_back(policy: Compaction, pause: Pause | None, now_ms: int) -> Explanation | None:
    """Why a person, too, has to insist: the declaration or a pause says so of this very table. All other reasons bind the sensor alone."""
    if policy.mode == "off":
        return Reason.OPTED_OUT.explain(said="mode off")
    return pause.explanation if pause is not None and pause.holds(now_ms) else None


def tries_of(history: Commits, failures: Iterable[CompactionTry]) -> tuple[CompactionTry, ...]:
    """The tries of a table: those of our compactions that the log shows, and the failures that it does not.

    A compaction that committed and failed afterwards (its rows were not those before it) is a failure alone, and so is one that another
    run found out and undid. What one committed before it lost a race is a success beside the loss.
    """
    kept = tuple(failures)
    spans = [(each.ended_ms - int(each.seconds * 1000), each.ended_ms) for each in kept if each.result == "failed"]
    undone = history.undone()
    ours = (commit for commit in history.commits if is_ours(commit) and commit.version not in undone)
    found = (CompactionTry(ended_ms=each.committed_ms, result="succeeded", bytes_rewritten=each.removed_bytes) for each in ours)
    return (*(each for each in found if not any(start <= each.ended_ms <= end for start, end in spans)), *kept)


def _known_ms(ms: int, now_ms: int) -> int:
    return ms if ms <= now_ms else 0


def _one_per_run(tries: Iterable[CompactionTry]) -> list[CompactionTry]:
    """The tries, oldest first; a run's attempts are one try, of which the last tells the result."""
    ordered = sorted(tries, key=lambda each: each.ended_ms)
    last = {each.run: each for each in ordered if each.run}
    return [each for each in ordered if not each.run or last[each.run] is each]


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _WHY_LETTERS else f"{line[:_WHY_LETTERS]}…"
