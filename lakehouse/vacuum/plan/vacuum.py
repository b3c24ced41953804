"""Plans a vacuum: every file that it will delete, before anything is touched.

**Safety properties** (tests in `vacuum/plan/test_vacuum.py`)
- A file is planned only if the shared classifier (`vacuum/inventory/plan.py`)
  assigns it to a reclaimable part, and if it was last modified (in mode LITE: removed) before
  the horizon (now minus the retention, or earlier if a reader still needs removed files).
- A file of unknown age is kept. Nothing is deleted if the retention is unknown, or if a listing
  (modes FULL and INVENTORY) lacks live files.
- No plan contains a hidden file, a file in the log's folder, or a file that another table of the
  lake reads.
- A file is never in a plan if a commit that is still in the log added it and no commit removed it,
  even if a checkpoint lacks the file.
- A plan never contains a file below a prefix that a declared table loads from, or in a folder that
  looks like another table.
- A plan never contains a file that a kept version needs.
- The last check keeps a file that a newer version, a longer retention or another table
  needs. It never moves the horizon to a later time.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from math import ceil, inf
from typing import Any

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.operation import (
    VACUUM_MODES,
    Figure,
    NetBenefit,
    Operation,
    VacuumMode,
    VacuumRecord,
    figures_as_json,
)
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.stored_objects import (
    MAX_AGE_HOURS,
    PAGE_KEYS,
    SETTLED_MS,
    Part,
    StoredObject,
    total_bytes,
)
from lakehouse.base.text import HOUR_MS, count_of
from lakehouse.declare.policies import (
    SAFE_RETENTION_HOURS,
    SHORT_RETENTION_RISK,
    Vacuum,
)
from lakehouse.declare.prices import PriceBook, Prices
from lakehouse.declare.table import Table
from lakehouse.delta.protocol import RETENTION, unknown_features
from lakehouse.delta.snapshot import TableFacts
from lakehouse.vacuum.plan.candidates import (
    Candidate,
    DeletionGuard,
    VacuumFacts,
    folders_to_ask,
    log_covers,
    removed_by_log,
    retention_in_force,
    select,
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
# Assumed duration of one page of a listing on S3.
_SECONDS_PER_PAGE = 0.15
# An inventory whose times are all at least this much too early may have local times instead of UTC,
# because time zones are at least half an hour apart.
_ZONE_MS = 1_800_000
# A search for orphans is due after this share of `SWEEP_HOURS`, so that a daily vacuum also
# searches if it begins a little earlier than on the day before.
_DUE_SHARE = 0.9


@frozen
class Quote:
    """The expected cost of a vacuum by `mode`. `why_not`: why the mode is invalid, or empty."""

    mode: VacuumMode
    why_not: str
    list_requests: int
    get_requests: int
    seconds: float
    usd: float


def choose_mode(
    facts: VacuumFacts, *, prices: Prices, now_ms: int, requested: VacuumMode | None = None
) -> tuple[Quote, ...]:
    """The quotes of all modes. The first one is of the chosen mode.

    This is the requested mode or, if `requested` is `None`, the cheapest valid mode. Of two equally
    cheap modes, the faster one is chosen.

    Raises:
        Refused: no mode is valid, or the requested mode is not valid.
    """
    removed_count = len(removed_by_log(facts))
    invalid = {mode: _why_invalid(mode, facts, now_ms) for mode in VACUUM_MODES}
    # A person may choose LITE even if a search for orphans is due.
    why_not = {**invalid, "LITE": invalid["LITE"] or _why_sweep(facts, now_ms)}
    quotes = [_quote(mode, why_not[mode], facts, prices, removed_count) for mode in VACUUM_MODES]
    where = f"vacuum of {facts.table}"
    if requested is None:
        valid = [quote for quote in quotes if not quote.why_not]
        if not valid:
            raise Refused(f"{where}: {'; '.join(dict.fromkeys(why_not.values()))}")
        requested = min(valid, key=lambda quote: (quote.usd, quote.seconds)).mode
    elif requested not in VACUUM_MODES:
        raise Refused(f"{where}: mode is {requested!r}. Use {', '.join(VACUUM_MODES)}")
    elif invalid[requested]:
        others = ", ".join(mode for mode, why in invalid.items() if not why)
        raise Refused(f"{where} by mode {requested}: {invalid[requested]}. Use {others}")
    return tuple(sorted(quotes, key=lambda quote: quote.mode != requested))


def _quote(
    mode: VacuumMode, why_not: str, facts: VacuumFacts, prices: Prices, removed_count: int
) -> Quote:
    file_count = removed_count
    if mode != "LITE":
        file_count += len(facts.table_files.live)
    seconds = _SECONDS_FIXED + _SECONDS_PER_FILE * file_count
    lists = 0
    gets = 0
    if facts.on_s3:
        if mode == "FULL":
            lists = ceil(file_count / PAGE_KEYS)
        if mode == "INVENTORY" and facts.inventory:
            # Besides the data files, the inventory table's log is listed and read.
            gets = len(facts.inventory.files) + 2
        deletes = ceil(removed_count / DELETE_KEYS)
        seconds += (lists + gets) * _SECONDS_PER_PAGE + deletes * _SECONDS_PER_DELETE
    return Quote(
        mode=mode,
        why_not=why_not,
        list_requests=lists,
        get_requests=gets,
        seconds=seconds,
        # DELETE is free; LIST is billed as PUT.
        usd=prices.run_usd(seconds=seconds, get_requests=gets, put_requests=lists),
    )


def _why_invalid(mode: VacuumMode, facts: VacuumFacts, now_ms: int) -> str:
    """Why this mode cannot be used; empty if it can."""
    if mode == "LITE" and not (log_covers(facts) or facts.log_only):
        return "the log no longer names all files that were removed since the last complete vacuum"
    if mode != "LITE" and facts.log_only:
        return (
            "other programs write the table, so storage is not searched for files that its log "
            'never named, unless orphans = "delete"'
        )
    return _why_not_inventory(facts, now_ms) if mode == "INVENTORY" else ""


def _why_sweep(facts: VacuumFacts, now_ms: int) -> str:
    """Why storage must be searched for orphans, which LITE cannot do; empty if not needed."""
    sweep = facts.last_complete(("INVENTORY", "FULL"))
    hours = None if sweep is None else (now_ms - sweep.started_ms) / HOUR_MS
    if facts.log_only or (hours is not None and hours < SWEEP_HOURS * _DUE_SHARE):
        return ""
    searched = "was never searched for orphans"
    if hours is not None:
        searched = f"was last searched for orphans {hours:.0f} h ago"
    return (
        f"storage {searched}, and this is due every {SWEEP_HOURS} h; mode LITE cannot find orphans"
    )


def _why_not_inventory(facts: VacuumFacts, now_ms: int) -> str:
    inventory = facts.inventory
    if inventory is None:
        return facts.inventory_problem or "there is no inventory"
    hours = inventory.age_hours(now_ms)
    if hours > MAX_AGE_HOURS:
        return f"inventory {inventory.name} is {hours:.0f} h old (limit {MAX_AGE_HOURS:g} h)"
    if facts.records and inventory.created_ms <= facts.records[-1].ended_ms:
        return (
            f"inventory {inventory.name} is older than the last vacuum, so it may list deleted "
            "files"
        )
    return ""


@frozen
class VacuumPlan(Explained):
    """The files that a vacuum deletes by the chosen mode, and the reason.

    - `facts`: what the plan was made from.
    - `horizon_ms`: files removed before this time are past the retention.
    - `quotes`: the predictions for all modes, the chosen mode first.
    - `notes`: sentences to read before confirming.
    - `remembered`: kept files that later vacuums must consider again, although no listing finds
      them. They are kept because another table or a kept version needs them.
    """

    facts: VacuumFacts = field(repr=False)
    quotes: tuple[Quote, ...]
    horizon_ms: int
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]
    remembered: Set[str]

    @property
    def table(self) -> str:
        """The table's key."""
        return self.facts.table

    @property
    def version(self) -> int:
        """The table's version for which the plan was made."""
        return self.facts.table_files.version

    @property
    def mode(self) -> VacuumMode:
        """The chosen mode."""
        return self.quote.mode

    @property
    def quote(self) -> Quote:
        """The prediction for the chosen mode."""
        return self.quotes[0]

    @property
    def requests(self) -> dict[str, int]:
        """The predicted requests for the listing, the last check and the deletions."""
        quote = self.quote
        heads = 0
        deletes = 0
        if self.candidates and self.facts.on_s3:
            names = [each.name for each in self.candidates]
            folder_count = len(folders_to_ask(self.facts, self.mode, names))
            # Two search for newer commits, two in each folder for a new table, and one looks at
            # each name that a writer may use again.
            heads = 2 + 2 * folder_count + sum(not written_once(name) for name in names)
            deletes = ceil(len(names) / DELETE_KEYS)
        return {
            "LIST": quote.list_requests,
            "GET": quote.get_requests,
            "HEAD": heads,
            "DELETE": deletes,
        }

    @property
    def file_count(self) -> int:
        """Number of files to delete."""
        return len(self.candidates)

    @property
    def size_bytes(self) -> int:
        """Total size of the files to delete."""
        return total_bytes(self.candidates)

    def as_json(self) -> dict[str, Any]:
        """The plan in its documented JSON shape."""
        parts = Counter(each.part.name.lower() for each in self.candidates)
        horizon = datetime.fromtimestamp(self.horizon_ms / 1_000, tz=UTC)
        return {
            "table": self.table,
            "version": self.version,
            "mode": self.mode,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "retention_hours": (self.facts.table_files.retention_ms or 0) / HOUR_MS,
            "horizon": horizon.strftime("%Y-%m-%dT%H:%MZ"),
            "files": self.file_count,
            "bytes": self.size_bytes,
            "parts": dict(sorted(parts.items())),
            "requests": self.requests,
            "seconds": round(self.quote.seconds, 3),
            "usd": round(self.quote.usd, 9),
            "notes": list(self.notes),
            "modes": [asdict(quote) for quote in self.quotes],
            "paths": [each.name for each in self.candidates],
        }


def plan_vacuum(
    facts: VacuumFacts,
    table: Table,
    objects: Iterable[StoredObject],
    *,
    quotes: tuple[Quote, ...],
    now_ms: int,
) -> VacuumPlan:
    """The plan of a vacuum of `table` by the mode of the first quote, selected among `objects`.

    They are listed in an inventory, by a LIST after `now_ms`, or (mode LITE) in the log.

    Raises:
        Refused: the retention is unknown or too short, a table feature is unknown, or the report
            lacks live files or seems to have local times.
        Broken: storage or a checkpoint lacks live files.
    """
    _refuse_unsafe(facts, table.vacuum)
    mode = quotes[0].mode
    guard = DeletionGuard(facts, now_ms=now_ms, horizon_ms=facts.needed_since_ms)
    selection = select(facts, guard, objects)
    if mode != "LITE":
        _refuse_gaps(facts, selection.unseen, mode, now_ms)
    # With local times, files would count as older than the retention too early.
    if mode == "INVENTORY" and facts.inventory and -inf < selection.lead_ms <= -_ZONE_MS:
        raise Refused(
            f"vacuum of {facts.table} by mode INVENTORY: in inventory {facts.inventory.name}, "
            f"every live file is at least {-selection.lead_ms / HOUR_MS:.1f} h older than in the "
            "log. It may have local times instead of UTC. Use a report in UTC, or mode FULL"
        )
    candidates = selection.candidates
    explanation = _explanation(facts, candidates, mode, guard.horizon_ms)
    if selection.kept:
        count = count_of(len(selection.kept), "file")
        more = f"{explanation.more}; {count} past the retention will stay for kept versions"
        explanation = replace(explanation, more=more)
    notes = tuple[str, ...]()
    if mode == "LITE" and any(not each.size_bytes for each in candidates):
        notes = ("more bytes may be deleted than shown: the log lacks the sizes of some files",)
    kept_for_versions = selection.kept if mode == "LITE" else set[str]()
    return VacuumPlan(
        facts=facts,
        quotes=quotes,
        explanation=explanation,
        horizon_ms=guard.horizon_ms,
        candidates=candidates,
        notes=notes,
        remembered=kept_for_versions | selection.borrowed,
    )


def operation_by_log(
    table: Table, facts: TableFacts, last: VacuumRecord | None, book: PriceBook, *, now_ms: int
) -> Operation:
    """The files that a vacuum would delete according to the log, without reading the storage.

    `last` is the newest complete vacuum, whose cost is the predicted cost. Orphans are not counted.
    """
    snapshot = facts.snapshot
    retention_ms = retention_in_force(table.vacuum, snapshot.properties)
    horizon_ms = 0 if retention_ms is None else now_ms - retention_ms
    since_ms = last.horizon_ms if last else 0
    commits = facts.history.commits
    expired_commits = [each for each in commits if since_ms <= each.committed_ms < horizon_ms]
    file_count = sum(len(each.removed_paths) for each in expired_commits)
    size_bytes = sum(each.removed_bytes for each in expired_commits)
    explanation = (Reason.VACUUM_DUE if file_count else Reason.NOTHING_PAST).explain(
        files=file_count,
        bytes=size_bytes,
        orphans=0,
        horizon=horizon_ms,
        waiting=len(snapshot.tombstones),
        mode="LITE",
    )
    saved_usd_per_day = book.stored_usd_per_day(size_bytes)
    return Operation(
        operation="vacuum",
        table=table.key,
        reason=explanation.reason.name,
        sentence=explanation.sentence,
        is_due=file_count > 0,
        size_bytes=size_bytes,
        net_benefit=last and NetBenefit(benefit_usd_per_day=saved_usd_per_day, cost_usd=last.usd),
    )


def plan_rest(
    planned: VacuumPlan, candidates: Sequence[Candidate], spared: Mapping[str, str]
) -> VacuumPlan:
    """The plan, reduced to `candidates`, with a note for each reason in `spared`."""
    reasons = dict.fromkeys(spared.values())
    notes = list(planned.notes)
    for why in reasons:
        names = [name for name, reason in spared.items() if reason == why]
        count = count_of(len(names), "file")
        notes.append(f"{count} of the plan will stay, for example {min(names)}: {why}")
    explanation = Reason.ALL_STAY.explain(files=len(planned.candidates))
    if candidates:
        explanation = _explanation(planned.facts, candidates, planned.mode, planned.horizon_ms)
    return replace(
        planned, candidates=tuple(candidates), explanation=explanation, notes=tuple(notes)
    )


def _refuse_unsafe(facts: VacuumFacts, policy: Vacuum) -> None:
    """Refuses a table that may not be vacuumed, whatever its folder contains."""
    where = f"vacuum of {facts.table}"
    retention_ms = facts.table_files.retention_ms
    if unknown := unknown_features(facts.log.snapshot.features):
        raise Refused(
            f"{where}: the table feature {unknown[0]} is unknown, so this program cannot know "
            "which files the table needs. Use a newer release of this program, or a table without "
            "the feature"
        )
    if retention_ms is None:
        value = facts.log.snapshot.properties.get(RETENTION)
        raise Refused(
            f"{where}: {RETENTION} is {value!r}, which cannot be understood. Use, for example, "
            "'interval 7 days'"
        )
    if retention_ms < SAFE_RETENTION_HOURS * HOUR_MS and not policy.accepts_short_retention:
        raise Refused(
            f"{where}: the table's retention of {retention_ms / HOUR_MS:g} h is shorter than a "
            "week. Either set a longer retention, or accept the risk in the declaration with "
            f"Vacuum(accepts_short_retention={SHORT_RETENTION_RISK!r})"
        )


def _refuse_gaps(facts: VacuumFacts, unseen: Set[str], mode: VacuumMode, now_ms: int) -> None:
    """Raises if the listing lacks files of the newest version that it must contain."""
    settled_ms = now_ms - SETTLED_MS
    if mode == "INVENTORY" and facts.inventory:
        settled_ms = facts.inventory.settled_ms
    settled = [
        name for name, each in facts.table_files.live.items() if each.is_older_than(settled_ms)
    ]
    missing = [name for name in settled if name in unseen]
    if not missing:
        return
    where = f"vacuum of {facts.table} by mode {mode}"
    gap = (
        f"{len(missing)} of the {len(settled)} files that the newest version reads, for example "
        f"{min(missing)}"
    )
    if mode == "INVENTORY" and facts.inventory:
        raise Refused(
            f"{where}: inventory {facts.inventory.name} lacks {gap}. It is incomplete, "
            "covers another prefix, or spells its keys differently. Use a complete inventory, or "
            "mode FULL"
        )
    raise Broken(
        f"{where}: storage lacks {gap}. Nothing was deleted. Either restore the missing files "
        "from a backup, or restore the table to a version that does not need them"
    )


def _explanation(
    facts: VacuumFacts, candidates: Sequence[Candidate], mode: VacuumMode, horizon_ms: int
) -> Explanation:
    times_ms = facts.table_files.removed.values()
    numbers = {
        "files": len(candidates),
        "bytes": total_bytes(candidates),
        "orphans": sum(each.part is Part.ORPHANED_OLD for each in candidates),
        "horizon": horizon_ms,
        "waiting": sum(ms is None or ms >= horizon_ms for ms in times_ms),
        "mode": mode,
    }
    more = f"; {facts.needed_because}" if facts.needed_because else ""
    return Explanation(Reason.VACUUM_DUE if candidates else Reason.NOTHING_PAST, numbers, more)


@frozen
class VacuumOutcome:
    """A vacuum's plan, and what the vacuum did.

    `spared` and `failed` contain the planned files that were not deleted, each with the reason.
    """

    plan: VacuumPlan
    figures: tuple[Figure, ...]
    spared: Mapping[str, str]
    failed: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON document, plus the actual figures."""
        return {
            **self.plan.as_json(),
            "figures": figures_as_json(self.figures),
            "spared": dict(self.spared),
            "failed": dict(self.failed),
        }
