"""The mode that a vacuum takes: the cheapest that is valid for this table now, each with its price or why it is not."""

from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from lakehouse.core.costs.estimate import price
from lakehouse.core.declaration.prices import Prices
from lakehouse.core.declaration.vacuum_policy import VACUUM_MODES, type_of_mode
from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import PAGE_KEYS
from lakehouse.core.units import HOUR_MS
from lakehouse.core.vacuum.candidates import MOST_FILES
from lakehouse.core.vacuum.facts import SECONDS_PER_PAGE, VacuumFacts, log_covers, removed_by_log

# Source: AWS, DeleteObjects: at most so many keys in one request.
DELETE_KEYS = 1_000
# Storage is searched for orphans once a day; a daily report has two hours to arrive.
SWEEP_HOURS = 24
MAX_REPORT_HOURS = 26
# Assumed until a lake has run some: Delta's answer takes a few seconds, then so much per file asked about, listed and deleted.
_SECONDS_FIXED, _SECONDS_PER_FILE = 3.0, 40e-6
_SECONDS_PER_DELETE = 0.15
# Of a vacuum that runs once a day each begins a little earlier or later than the one before; a sweep is not put off by a day for that.
_EARLY = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The expected cost of a vacuum by `mode` before it knows what lies in storage; `why_not` is empty if it is valid."""

    mode: type_of_mode
    why_not: str
    list_requests: int
    get_requests: int
    delete_requests: int
    seconds: float
    usd: float

    def as_json(self) -> dict[str, Any]:
        """Its documented shape."""
        return {**asdict(self), "seconds": round(self.seconds, 3), "usd": round(self.usd, 9)}


def choose_mode(
    facts: VacuumFacts,
    *,
    prices: Prices,
    now_ms: int,
    wanted: type_of_mode | None = None,
) -> tuple[type_of_mode, tuple[Quote, ...]]:
    """The mode, and all quotes; of those that are valid the cheapest, then the quickest. What is `wanted` is refused unless it is valid."""
    quotes = tuple(_quote(mode, facts, prices, now_ms) for mode in ("LITE", "INVENTORY", "FULL"))
    valid = [quote for quote in quotes if not quote.why_not]
    if wanted is None and valid:
        return min(valid, key=lambda quote: (quote.usd, quote.seconds)).mode, quotes
    if wanted is None:
        raise Refused(
            f"vacuum of {facts.table_files.table}: {'; '.join(dict.fromkeys(quote.why_not for quote in quotes))}"
        )
    if wanted not in VACUUM_MODES:
        raise Refused(
            f"vacuum of {facts.table_files.table}: mode is {wanted!r}; accepted: {', '.join(VACUUM_MODES)}"
        )
    if found := next(
        (quote.why_not for quote in quotes if quote.mode == wanted and not _may(quote, facts)), None
    ):
        accepted = ", ".join(quote.mode for quote in quotes if _may(quote, facts))
        raise Refused(
            f"vacuum of {facts.table_files.table} by mode {wanted}: {found}; accepted: {accepted}"
        )
    return wanted, quotes


def _may(quote: Quote, facts: VacuumFacts) -> bool:
    """Whether a person may choose the mode: a sweep that is due is no reason against LITE."""
    return not quote.why_not or (
        quote.mode == "LITE" and not _why_not_lite(facts, len(removed_by_log(facts)))
    )


def _why_not_lite(facts: VacuumFacts, going: int) -> str:
    if not log_covers(facts) and not facts.log_only:
        return "the log no longer tells of all that was removed since the last vacuum"
    # The next LITE would begin with the same files, since the log does not tell which are gone.
    if going > MOST_FILES:
        return (
            f"the log tells of {going:,} removed files, at most {MOST_FILES:,} are deleted at once"
        )
    return ""


def _quote(mode: type_of_mode, facts: VacuumFacts, prices: Prices, now_ms: int) -> Quote:
    table_files = facts.table_files
    known = len(table_files.live) + len(table_files.stones) + len(table_files.vectors)
    going = len(removed_by_log(facts)) if mode == "LITE" else len(table_files.stones)
    lists = ceil(known / PAGE_KEYS) if mode == "FULL" else 0
    gets = len(facts.report.files) + 2 if mode == "INVENTORY" and facts.report else 0
    deletes = ceil(going / DELETE_KEYS)
    seconds = _SECONDS_FIXED + _SECONDS_PER_FILE * (going + (0 if mode == "LITE" else known))
    if facts.on_s3:
        seconds += (lists + gets) * SECONDS_PER_PAGE + deletes * _SECONDS_PER_DELETE
    else:
        lists = gets = deletes = 0
    return Quote(
        mode=mode,
        why_not=_why_not(mode, facts, now_ms, going),
        list_requests=lists,
        get_requests=gets,
        delete_requests=deletes,
        seconds=seconds,
        # DELETE is free; LIST is billed as PUT.
        usd=price(prices, seconds=seconds, get_requests=gets, put_requests=lists),
    )


def _why_not(mode: type_of_mode, facts: VacuumFacts, now_ms: int, going: int) -> str:
    last, sweep, report = facts.last, facts.last_sweep, facts.report
    if facts.log_only and mode != "LITE":
        return 'others write it: what its log never told of stays, unless orphans = "delete"'
    if facts.log_only:
        return _why_not_lite(facts, going)
    if mode == "FULL":
        return ""
    if mode == "LITE":
        if why_not := _why_not_lite(facts, going):
            return why_not
        # A sweep in the future is the work of a clock that was ahead, and looked at nothing that is past now.
        hours = (
            None
            if sweep is None or sweep.started_ms > now_ms
            else (now_ms - sweep.started_ms) / HOUR_MS
        )
        if hours is None or hours >= SWEEP_HOURS * _EARLY:
            when = "never" if hours is None else f"{hours:.0f} h ago"
            return f"storage was looked through {when}, every {SWEEP_HOURS} h is wanted, and the log tells of no orphans"
        return ""
    if report is None:
        return facts.report_problem or "there is no complete report"
    age = (now_ms - report.created_ms) / HOUR_MS
    if age > MAX_REPORT_HOURS:
        return (
            f"the report {report.name} is {age:.0f} h old, at most {MAX_REPORT_HOURS} h are allowed"
        )
    if last is not None and report.created_ms <= last.ended_ms <= now_ms:
        return (
            f"the report {report.name} is older than the last vacuum, and lists what that deleted"
        )
    return ""
