"""The files that a vacuum will delete, one by one, before anything is touched.

**Safety properties**
- Only files that the shared classifier (`core/inventory/classify.py`) calls reclaimable go, and
  only if they were last modified before the horizon (`test_plan.py`).
- An unknown time, an unknown retention, or a listing that lacks live files deletes nothing
  (`test_plan.py`).
- No plan holds anything of the log's folder, anything hidden, or a file that another table of the
  lake reads. The one exception: Hadoop's checksums, each of which goes with its file
  (`test_plan.py`).
- A file that a commit still in the log added, and no commit removed, is never in a plan, whatever a
  checkpoint says (`test_plan.py`).
- Nothing below a prefix from which a declared table loads, and nothing in a folder that looks like
  another table's, is ever in a plan (`test_plan.py`).
- A file that a newer version, a longer retention or another table needs at the last check stays:
  the horizon only moves back (`test_plan.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lakehouse.core.costs.estimate import price
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.declaration.vacuum_policy import (
    SAFE_RETENTION_HOURS,
    SHORT_RETENTION_RISK,
    Vacuum,
    type_of_mode,
)
from lakehouse.core.delta.protocol import RETENTION, unknown_features
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.inventory.classify import Classifier
from lakehouse.core.inventory.objects import RECLAIMABLE, Part, StoredObject
from lakehouse.core.inventory.table_files import Reference
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.units import HOUR_MS
from lakehouse.core.vacuum.candidates import MOST_FILES, Candidate, Selection
from lakehouse.core.vacuum.facts import (
    ASKED_AT_ONCE,
    SECONDS_PER_PAGE,
    RemovedSince,
    VacuumFacts,
    folders_to_ask,
    written_once,
)
from lakehouse.core.vacuum.mode import DELETE_KEYS, Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPlan(Explained):
    """The files that a vacuum of `table` at `version` deletes; none means nothing to do, and `reason` says why.

    What was removed before `horizon_ms` goes. `requests`, `seconds` and `usd` are predicted for this mode; `quotes` were those of all
    modes before storage was looked at. `notes` are sentences that a person should read before saying yes. `lists_saved` are the requests
    that a listing of the table's folder would have taken. `left_count` more files would go, if one vacuum took as many.
    `log_only`: the log alone decides what goes; `lent` are those of its files that another table reads.
    """

    table: str
    version: int
    mode: type_of_mode
    report: str
    retention_ms: int
    horizon_ms: int
    candidates: tuple[Candidate, ...]
    quotes: tuple[Quote, ...]
    requests: Mapping[str, int]
    seconds: float
    usd: float
    notes: tuple[str, ...] = ()
    lists_saved: int = 0
    left_count: int = 0
    lent: frozenset[str] = frozenset()
    log_only: bool = False

    @property
    def file_count(self) -> int:
        """Files that go."""
        return len(self.candidates)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return sum(each.size_bytes for each in self.candidates)

    def as_json(self) -> dict[str, Any]:
        """The plan's documented shape."""
        parts = Counter(each.part.name.lower() for each in self.candidates)
        return {
            "table": self.table,
            "version": self.version,
            "mode": self.mode,
            "report": self.report,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "retention_hours": self.retention_ms / HOUR_MS,
            "horizon": datetime.fromtimestamp(self.horizon_ms / 1_000, tz=UTC).strftime(
                "%Y-%m-%dT%H:%MZ"
            ),
            "files": self.file_count,
            "bytes": self.size_bytes,
            "parts": dict(sorted(parts.items())),
            "requests": dict(self.requests),
            "seconds": round(self.seconds, 3),
            "usd": round(self.usd, 9),
            "notes": list(self.notes),
            "files_left": self.left_count,
            "modes": [quote.as_json() for quote in self.quotes],
            "paths": [each.name for each in self.candidates],
        }


def plan_vacuum(
    facts: VacuumFacts,
    policy: Vacuum,
    objects: Iterable[StoredObject],
    *,
    mode: type_of_mode,
    quotes: Sequence[Quote],
    now_ms: int,
    settled_ms: int = 0,
    prices: Prices = DEFAULT_PRICES,
) -> VacuumPlan:
    """The plan for `objects`, by the mode's quote. Unless the mode is LITE, live files written before `settled_ms` must be among them.

    Raises:
        Refused: the retention is unknown or too short, a table feature is unknown, or the report lacks live files.
        Broken: storage itself lacks live files.
    """
    _refuse_unsafe(facts, policy)
    classifier = _classifier(facts, now_ms=now_ms, horizon_ms=facts.held_ms)
    selection = Selection(facts, classifier)
    selection.take(objects)
    if mode != "LITE":
        _refuse_gaps(facts, selection.unseen, mode, settled_ms)
    if mode == "INVENTORY" and facts.report:
        selection.refuse_local_times(facts.report.name)
    found = selection.candidates()
    explanation = _explanation(
        facts,
        found,
        mode,
        horizon_ms=classifier.horizon_ms,
    )
    candidates = found if explanation.reason is Reason.VACUUM_DUE else ()
    return VacuumPlan(
        table=facts.table_files.table,
        version=facts.table_files.version,
        mode=mode,
        report=facts.report.name if mode == "INVENTORY" and facts.report else "",
        explanation=explanation,
        retention_ms=facts.table_files.retention_ms or 0,
        horizon_ms=classifier.horizon_ms,
        candidates=candidates,
        quotes=tuple(quotes),
        notes=tuple(_notes(facts, selection, candidates, mode)),
        left_count=selection.left_count if candidates else 0,
        lent=frozenset(selection.lent),
        log_only=facts.log_only,
        **_price(facts, candidates, {quote.mode: quote for quote in quotes}, mode, prices),
    )


def plan_rest(
    planned: VacuumPlan,
    facts: VacuumFacts,
    candidates: Sequence[Candidate],
    spared: Mapping[str, str],
    *,
    prices: Prices,
) -> VacuumPlan:
    """The plan for those of its `candidates` that are left, however few; a note for each reason in `spared` tells of the others."""
    stay = {
        why: [name for name, reason in spared.items() if reason == why]
        for why in dict.fromkeys(spared.values())
    }
    explanation = _explanation(facts, candidates, planned.mode, horizon_ms=planned.horizon_ms)
    return replace(
        planned,
        candidates=tuple(candidates),
        explanation=explanation
        if candidates
        else Reason.ALL_STAY.explain(files=len(planned.candidates)),
        notes=(
            *planned.notes,
            *(
                f"{len(names)} file(s) of the plan stay, like {min(names)}: {why}"
                for why, names in stay.items()
            ),
        ),
        **_price(
            facts, candidates, {quote.mode: quote for quote in planned.quotes}, planned.mode, prices
        ),
    )


class LaterFacts:
    """The word of newer facts on the files of a plan, just before they go. `horizon_ms` is the plan's, `now_ms` the clock of then."""

    def __init__(self, facts: VacuumFacts, *, horizon_ms: int, now_ms: int) -> None:
        self._classifier = _classifier(facts, now_ms=now_ms, horizon_ms=horizon_ms)
        self._late = RemovedSince(facts, self._classifier.horizon_ms)
        self._allows_any = facts.table_files.retention_ms is not None and not unknown_features(
            facts.log.snapshot.features
        )

    def allow(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The files that may still go, each of Hadoop's checksums with its file."""
        return [each for each in candidates if self._allows_any and self._allows(each)]

    def _allows(self, each: Candidate) -> bool:
        name = each.goes_with or each.name
        object_ = StoredObject(
            bucket="", key="", size_bytes=each.size_bytes, modified_ms=each.modified_ms
        )
        return self._classifier.part_of(name, object_) in RECLAIMABLE and not self._late.holds(name)


def _classifier(facts: VacuumFacts, *, now_ms: int, horizon_ms: int | None) -> Classifier:
    return Classifier(
        facts.table_files,
        facts.lent,
        now_ms=now_ms,
        horizon_ms=horizon_ms,
        unplaced=facts.unplaced,
        landed=facts.landed,
    )


def _refuse_unsafe(facts: VacuumFacts, policy: Vacuum) -> None:
    """Refuses a table that may not be vacuumed, whatever lies in storage."""
    table_files, where = facts.table_files, f"vacuum of {facts.table_files.table}"
    if unknown := unknown_features(facts.log.snapshot.features):
        raise Refused(
            f"{where}: table feature {unknown[0]} is not known here, nor which files it needs; accepted: tables without it"
        )
    if table_files.retention_ms is None:
        raise Refused(
            f"{where}: {RETENTION} is {facts.log.snapshot.properties.get(RETENTION)!r}, which cannot be understood; "
            "accepted: like 'interval 7 days'"
        )
    if (
        table_files.retention_ms < SAFE_RETENTION_HOURS * HOUR_MS
        and not policy.accepts_short_retention
    ):
        raise Refused(
            f"{where}: its retention is {table_files.retention_ms / HOUR_MS:g} h, under a week; accepted: a longer one, or in its "
            f"declaration Vacuum(accepts_short_retention={SHORT_RETENTION_RISK!r})"
        )


def _refuse_gaps(facts: VacuumFacts, unseen: Set[str], mode: type_of_mode, settled_ms: int) -> None:
    needed: Mapping[str, Reference] = {**facts.table_files.live, **facts.table_files.vectors}
    settled = [
        name
        for name, each in needed.items()
        if each.written_ms is not None and each.written_ms < settled_ms
    ]
    lacking = [name for name in settled if name in unseen]
    if not lacking:
        return
    where = f"vacuum of {facts.table_files.table} by mode {mode}"
    what = f"{len(lacking)} of {len(settled)} files that the newest version reads"
    if mode == "INVENTORY" and facts.report:
        raise Refused(
            f"{where}: {what} are not in the report {facts.report.name}, like {min(lacking)}: it is cut short, of another prefix, or its "
            "keys are spelt otherwise; accepted: a complete report, or mode FULL"
        )
    raise Broken(
        f"{where}: {what} are not in storage, like {min(lacking)}; restore them, or the version before they were lost"
    )


def _explanation(
    facts: VacuumFacts,
    candidates: Sequence[Candidate],
    mode: type_of_mode,
    *,
    horizon_ms: int,
) -> Explanation:
    held = f"; {facts.held}" if facts.held_ms is not None and facts.held else ""
    size = sum(each.size_bytes for each in candidates)
    waiting = sum(
        ms is None or ms >= horizon_ms
        for ms in (*facts.table_files.stones.values(), *facts.table_files.removed_vectors.values())
    )
    orphans = sum(each.part is Part.ORPHANED_OLD for each in candidates)
    numbers = {
        "files": len(candidates),
        "bytes": size,
        "orphans": orphans,
        "horizon": horizon_ms,
        "waiting": waiting,
        "mode": mode,
    }
    reason = Reason.VACUUM_DUE if candidates else Reason.NOTHING_PAST
    return Explanation(reason, numbers, held)


def _price(
    facts: VacuumFacts,
    candidates: Sequence[Candidate],
    quotes: Mapping[type_of_mode, Quote],
    mode: type_of_mode,
    prices: Prices,
) -> dict[str, Any]:
    """Requests, seconds and money, now that it is known how many files go."""
    quote, batches = (
        quotes[mode],
        [
            candidates[start : start + DELETE_KEYS]
            for start in range(0, len(candidates), DELETE_KEYS)
        ],
    )
    lists, heads, deletes = quote.list_requests, 0, 0
    if facts.on_s3:
        # Before each batch: a log in each folder, the newest commit and the one after it, and names that a writer may use again.
        asked = [
            by_head
            for batch in batches
            for by_head in folders_to_ask(facts, mode, (each.name for each in batch)).values()
        ]
        lists += asked.count(False)
        heads = (
            asked.count(True)
            + 2 * len(batches)
            + sum(not written_once(each.name) for each in candidates)
        )
        deletes = len(batches)
    seconds = (
        quote.seconds + (lists - quote.list_requests + heads) * SECONDS_PER_PAGE / ASKED_AT_ONCE
        if candidates
        else 0.0
    )
    return {
        "requests": {"LIST": lists, "GET": quote.get_requests, "HEAD": heads, "DELETE": deletes},
        "seconds": seconds,
        "usd": price(
            prices, seconds=seconds, get_requests=quote.get_requests + heads, put_requests=lists
        ),
        "lists_saved": quotes["FULL"].list_requests - quote.list_requests,
    }


def _notes(
    facts: VacuumFacts, selection: Selection, candidates: Sequence[Candidate], mode: type_of_mode
) -> Iterable[str]:
    """Sentences on files that stay though nothing needs them, and how they could go, on those that go, and on a damaged log."""
    if facts.log.snapshot.log.note:
        yield facts.log.snapshot.log.note
    for root, count in sorted(selection.stray_counts.items()):
        yield (
            f"{count} file(s) that nothing needs stay below {root}/, which {facts.strays[root]} makes look like a table of its own: "
            "if there is none, delete that key"
        )
    for prefix, count in sorted(selection.landed_counts.items()):
        yield f"{count} file(s) below {prefix} stay: a declared table lands from there"
    if selection.left_count:
        yield f"{selection.left_count} more file(s) go with the next vacuum: one takes at most {MOST_FILES:,}, which bounds its memory"
    if odd := selection.odd():
        yield (
            f"{len(odd)} file(s) that nothing needs stay, like {odd[0]!r}: Delta takes a colon in a name's first part for the end of a "
            "scheme, and no request to S3 can hold a control character; rename them, or delete them by hand"
        )
    if candidates and facts.versioned is not False:
        kept = "keeps" if facts.versioned else "may keep"
        yield (
            f"the bucket {kept} versions: each delete adds a delete marker, and the bytes stay, as a noncurrent version, until a lifecycle "
            "rule with NoncurrentVersionExpiration and ExpiredObjectDeleteMarker takes them"
        )
    if mode == "LITE" and any(not each.size_bytes for each in candidates):
        yield "bytes are at least these: the log does not tell the sizes of all removed files"
