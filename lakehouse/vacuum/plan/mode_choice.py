"""Chooses the cheapest valid mode for a vacuum, based on the expected cost (quote) of each mode."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import MAX_AGE_HOURS, PAGE_KEYS
from lakehouse.base.text import HOUR_MS
from lakehouse.compact.plan.estimate import run_price
from lakehouse.declare.prices import Prices
from lakehouse.declare.vacuum import VACUUM_MODES, VacuumMode
from lakehouse.vacuum.plan.candidates import MOST_FILES, Candidate, log_covers, removed_by_log
from lakehouse.vacuum.plan.facts import (
    ASKED_AT_ONCE,
    SECONDS_PER_PAGE,
    VacuumFacts,
    folders_to_ask,
    written_once,
)

# The maximum number of keys in one request. Source: Amazon S3 API reference, DeleteObjects.
DELETE_KEYS = 1_000
# Storage is searched for orphans once a day.
SWEEP_HOURS = 24
# Assumed durations: of reading the log twice (by this program and by deltalake), of handling one
# file in the log, and of one DELETE request.
_SECONDS_FIXED = 0.5
_SECONDS_PER_FILE = 40e-6
_SECONDS_PER_DELETE = 0.15
# A search for orphans is due after this share of `SWEEP_HOURS`, so that a daily vacuum also
# searches if it begins a little earlier than on the day before.
_DUE_SHARE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The expected cost of a vacuum by `mode`. `why_not`: why the mode is invalid, or empty."""

    mode: VacuumMode
    why_not: str
    list_requests: int
    get_requests: int
    delete_requests: int
    seconds: float
    usd: float

    def as_json(self) -> dict[str, Any]:
        """The quote in its documented JSON shape."""
        return {**asdict(self), "seconds": round(self.seconds, 3), "usd": round(self.usd, 9)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """The mode of a vacuum, and the quotes of all modes."""

    mode: VacuumMode
    quotes: tuple[Quote, ...]

    def quote_of(self, mode: VacuumMode) -> Quote:
        """The quote of one mode."""
        return next(quote for quote in self.quotes if quote.mode == mode)


def choose_mode(
    facts: VacuumFacts, *, prices: Prices, now_ms: int, requested: VacuumMode | None = None
) -> ModeChoice:
    """The requested mode or, if `requested` is `None`, the cheapest valid mode.

    Of two equally cheap modes, the faster one is chosen.

    Raises:
        Refused: no mode is valid, or the requested mode is not valid.
    """
    quotes = tuple(_quote(mode, facts, prices, now_ms) for mode in VACUUM_MODES)
    where = f"vacuum of {facts.table}"
    if requested is None:
        valid = [quote for quote in quotes if not quote.why_not]
        if not valid:
            reasons = dict.fromkeys(quote.why_not for quote in quotes)
            raise Refused(f"{where}: {'; '.join(reasons)}")
        cheapest = min(valid, key=lambda quote: (quote.usd, quote.seconds))
        return ModeChoice(mode=cheapest.mode, quotes=quotes)
    if requested not in VACUUM_MODES:
        raise Refused(f"{where}: mode is {requested!r}. Use {', '.join(VACUUM_MODES)}")
    choice = ModeChoice(mode=requested, quotes=quotes)
    quote = choice.quote_of(requested)
    if not _may_be_requested(quote, facts):
        others = ", ".join(each.mode for each in quotes if _may_be_requested(each, facts))
        raise Refused(f"{where} by mode {requested}: {quote.why_not}. Use {others}")
    return choice


def _may_be_requested(quote: Quote, facts: VacuumFacts) -> bool:
    """Whether a person may choose the mode. LITE is allowed even if a search for orphans is due."""
    if quote.mode == "LITE":
        return not _why_not_lite(facts, len(removed_by_log(facts)))
    return not quote.why_not


def _why_not_lite(facts: VacuumFacts, removed_count: int) -> str:
    if not log_covers(facts) and not facts.log_only:
        return "the log no longer names all files that were removed since the last complete vacuum"
    # A log does not show which removed files have been deleted. So if a vacuum by mode LITE deleted
    # only some of them, the next one would begin with the same files again.
    if removed_count > MOST_FILES:
        return (
            f"the log names {removed_count:,} removed files, and one vacuum deletes at most "
            f"{MOST_FILES:,} files"
        )
    return ""


def _quote(mode: VacuumMode, facts: VacuumFacts, prices: Prices, now_ms: int) -> Quote:
    table_files = facts.table_files
    known_count = len(table_files.live) + len(table_files.tombstones) + len(table_files.vectors)
    removed_count = len(removed_by_log(facts)) if mode == "LITE" else len(table_files.tombstones)
    lists = 0
    gets = 0
    if mode == "FULL":
        lists = ceil(known_count / PAGE_KEYS)
    if mode == "INVENTORY" and facts.inventory:
        # Besides the data files, the inventory table's log is listed and read.
        gets = len(facts.inventory.files) + 2
    deletes = ceil(removed_count / DELETE_KEYS)
    file_count = removed_count if mode == "LITE" else removed_count + known_count
    seconds = _SECONDS_FIXED + _SECONDS_PER_FILE * file_count
    if facts.on_s3:
        seconds += (lists + gets) * SECONDS_PER_PAGE + deletes * _SECONDS_PER_DELETE
    else:
        lists = gets = deletes = 0
    return Quote(
        mode=mode,
        why_not=_why_not(mode, facts, now_ms, removed_count),
        list_requests=lists,
        get_requests=gets,
        delete_requests=deletes,
        seconds=seconds,
        # DELETE is free; LIST is billed as PUT.
        usd=run_price(prices, seconds=seconds, get_requests=gets, put_requests=lists),
    )


def _why_not(mode: VacuumMode, facts: VacuumFacts, now_ms: int, removed_count: int) -> str:
    if facts.log_only and mode != "LITE":
        return (
            "other programs write the table, so storage is not searched for files that its log "
            'never named, unless orphans = "delete"'
        )
    if facts.log_only:
        return _why_not_lite(facts, removed_count)
    match mode:
        case "FULL":
            return ""
        case "LITE":
            return _why_not_lite(facts, removed_count) or _why_sweep(facts, now_ms)
        case "INVENTORY":
            return _why_not_inventory(facts, now_ms)


def _why_sweep(facts: VacuumFacts, now_ms: int) -> str:
    """Why storage must be searched for orphans, which LITE cannot do; empty if not needed."""
    sweep = facts.last_sweep
    hours = None if sweep is None else (now_ms - sweep.started_ms) / HOUR_MS
    if hours is not None and hours < SWEEP_HOURS * _DUE_SHARE:
        return ""
    searched = "was never searched for orphans"
    if hours is not None:
        searched = f"was last searched for orphans {hours:.0f} h ago"
    return (
        f"storage {searched}, and this is due every {SWEEP_HOURS} h; mode LITE cannot find orphans"
    )


def _why_not_inventory(facts: VacuumFacts, now_ms: int) -> str:
    inventory = facts.inventory
    last = facts.last
    if inventory is None:
        return facts.inventory_problem or "there is no inventory"
    hours = inventory.age_hours(now_ms)
    if hours > MAX_AGE_HOURS:
        return f"inventory {inventory.name} is {hours:.0f} h old (limit {MAX_AGE_HOURS:g} h)"
    if last is not None and inventory.created_ms <= last.ended_ms:
        return (
            f"inventory {inventory.name} is older than the last vacuum, so it may list deleted "
            "files"
        )
    return ""


def cost_of(
    facts: VacuumFacts, candidates: Sequence[Candidate], choice: ModeChoice, prices: Prices
) -> dict[str, Any]:
    """The predicted requests, seconds and cost of deleting these candidates."""
    quote = choice.quote_of(choice.mode)
    lists = quote.list_requests
    heads = 0
    deletes = 0
    if facts.on_s3:
        for start in range(0, len(candidates), DELETE_KEYS):
            names = [each.name for each in candidates[start : start + DELETE_KEYS]]
            by_head = [*folders_to_ask(facts, choice.mode, names).values()]
            # Requests before each batch: one per folder (HEAD or LIST), which searches for a new
            # table; a HEAD for the newest commit, for the next one, and for each name that a writer
            # may use again.
            lists += by_head.count(False)
            heads += by_head.count(True) + 2 + sum(not written_once(name) for name in names)
            deletes += 1
    seconds = 0.0
    if candidates:
        checks = lists - quote.list_requests + heads
        seconds = quote.seconds + checks * SECONDS_PER_PAGE / ASKED_AT_ONCE
    gets = quote.get_requests
    return {
        "requests": {"LIST": lists, "GET": gets, "HEAD": heads, "DELETE": deletes},
        "seconds": seconds,
        "usd": run_price(prices, seconds=seconds, get_requests=gets + heads, put_requests=lists),
        "lists_saved": choice.quote_of("FULL").list_requests - quote.list_requests,
    }
