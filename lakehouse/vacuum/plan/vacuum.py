"""Plans a vacuum: every file that it will delete, before anything is touched.

**Safety properties** (tests in `vacuum/plan/test_vacuum.py`)
- A file is planned only if the shared classifier (`vacuum/inventory/plan/reconcile.py`)
  assigns it to a reclaimable part, and if it was last modified (in mode LITE: removed) before
  the horizon (now minus the retention, or earlier if a reader still needs removed files).
- A file of unknown age is kept. Nothing is deleted if the retention is unknown, or if a listing
  (modes FULL and INVENTORY) lacks live files.
- No plan contains a file in the log's folder or a file that another table of the lake reads. No
  plan contains a hidden file, except Hadoop checksums, which are deleted with their data files.
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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.predicted_and_actual import Figure, figures_as_json
from lakehouse.base.reasons import Explained, Explanation, Reason
from lakehouse.base.stored_objects import KnownObjects, Part
from lakehouse.base.text import HOUR_MS, count_of
from lakehouse.declare.journal_records import VacuumRecord
from lakehouse.declare.table import Table
from lakehouse.declare.vacuum import SAFE_RETENTION_HOURS, SHORT_RETENTION_RISK, Vacuum, VacuumMode
from lakehouse.delta.protocol import RETENTION, unknown_features
from lakehouse.vacuum.inventory.plan.table_files import Reference
from lakehouse.vacuum.plan.candidates import MOST_FILES, Candidate, Selection, classifier_of
from lakehouse.vacuum.plan.facts import SECONDS_PER_PAGE, VacuumFacts
from lakehouse.vacuum.plan.mode_choice import ModeChoice, Quote, cost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumPlan(Explained):
    """The files that a vacuum of `table` at `version` deletes, and the reason.

    - `horizon_ms`: files removed before this time are past the retention.
    - `requests`, `seconds`, `usd`: predictions for this mode. `quotes`: the predictions for all
      modes, made before storage was read. `lists_saved`: the number of LIST requests that a FULL
      vacuum would need in addition.
    - `notes`: sentences to read before confirming.
    - `over_limit_count`: files that could also be deleted, but exceed the limit of one vacuum.
    - `log_only`: only the log decides which files are deleted. `remembered`: kept files that later
      vacuums must consider again, although no listing finds them. They are kept because another
      table or a kept version needs them.
    """

    table: str
    version: int
    mode: VacuumMode
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
    over_limit_count: int = 0
    remembered: frozenset[str] = frozenset()
    log_only: bool = False

    @property
    def file_count(self) -> int:
        """Number of files to delete."""
        return len(self.candidates)

    @property
    def size_bytes(self) -> int:
        """Total size of the files to delete."""
        return sum(each.size_bytes for each in self.candidates)

    @property
    def choice(self) -> ModeChoice:
        """The plan's mode, with the quotes of all modes."""
        return ModeChoice(mode=self.mode, quotes=self.quotes)

    def as_json(self) -> dict[str, Any]:
        """The plan in its documented JSON shape."""
        parts = Counter(each.part.name.lower() for each in self.candidates)
        horizon = datetime.fromtimestamp(self.horizon_ms / 1_000, tz=UTC)
        return {
            "table": self.table,
            "version": self.version,
            "mode": self.mode,
            "report": self.report,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "retention_hours": self.retention_ms / HOUR_MS,
            "horizon": horizon.strftime("%Y-%m-%dT%H:%MZ"),
            "files": self.file_count,
            "bytes": self.size_bytes,
            "parts": dict(sorted(parts.items())),
            "requests": dict(self.requests),
            "seconds": round(self.seconds, 3),
            "usd": round(self.usd, 9),
            "notes": list(self.notes),
            "files_left": self.over_limit_count,
            "modes": [quote.as_json() for quote in self.quotes],
            "paths": [each.name for each in self.candidates],
        }


def plan_vacuum(
    facts: VacuumFacts, table: Table, listing: KnownObjects, *, choice: ModeChoice, now_ms: int
) -> VacuumPlan:
    """The plan of a vacuum of `table` by the chosen mode.

    Raises:
        Refused: the retention is unknown or too short, a table feature is unknown, or the report
            lacks live files or seems to have local times.
        Broken: storage or a checkpoint lacks live files.
    """
    _refuse_unsafe(facts, table.vacuum)
    mode = choice.mode
    report = facts.inventory.name if mode == "INVENTORY" and facts.inventory else ""
    classifier = classifier_of(facts, now_ms=now_ms, horizon_ms=facts.needed_since_ms)
    selection = Selection(facts, classifier)
    selection.take(listing.objects)
    if mode != "LITE":
        _refuse_gaps(facts, selection.unseen, mode, listing.settled_ms)
    if report:
        selection.refuse_local_times(report)
    candidates = selection.candidates()
    horizon_ms = classifier.horizon_ms
    explanation = _explanation(facts, candidates, mode, horizon_ms)
    if selection.kept:
        count = count_of(len(selection.kept), "file")
        more = f"{explanation.more}; {count} past the retention will stay for kept versions"
        explanation = replace(explanation, more=more)
    kept_for_versions = frozenset(selection.kept) if mode == "LITE" else frozenset[str]()
    return VacuumPlan(
        table=facts.table,
        version=facts.table_files.version,
        mode=mode,
        report=report,
        explanation=explanation,
        retention_ms=facts.table_files.retention_ms or 0,
        horizon_ms=horizon_ms,
        candidates=candidates,
        quotes=choice.quotes,
        notes=tuple(_notes(facts, selection, candidates, mode)),
        over_limit_count=selection.over_limit_count if candidates else 0,
        remembered=kept_for_versions | selection.borrowed,
        log_only=facts.log_only,
        **cost_of(facts, candidates, choice, table.prices),
    )


def plan_rest(
    planned: VacuumPlan,
    facts: VacuumFacts,
    table: Table,
    candidates: Sequence[Candidate],
    spared: Mapping[str, str],
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
        explanation = _explanation(facts, candidates, planned.mode, planned.horizon_ms)
    return replace(
        planned,
        candidates=tuple(candidates),
        explanation=explanation,
        notes=tuple(notes),
        **cost_of(facts, candidates, planned.choice, table.prices),
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


def _refuse_gaps(facts: VacuumFacts, unseen: Set[str], mode: VacuumMode, settled_ms: int) -> None:
    """Raises if a listing lacks files of the newest version written before `settled_ms`."""
    needed: Mapping[str, Reference] = {**facts.table_files.live, **facts.table_files.vectors}
    settled = [
        name
        for name, each in needed.items()
        if each.written_ms is not None and each.written_ms < settled_ms
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
    removed = facts.table_files.removed_vectors
    times_ms = [*facts.table_files.tombstones.values(), *removed.values()]
    numbers = {
        "files": len(candidates),
        "bytes": sum(each.size_bytes for each in candidates),
        "orphans": sum(each.part is Part.ORPHANED_OLD for each in candidates),
        "horizon": horizon_ms,
        "waiting": sum(ms is None or ms >= horizon_ms for ms in times_ms),
        "mode": mode,
    }
    more = ""
    if facts.needed_since_ms is not None and facts.needed_because:
        more = f"; {facts.needed_because}"
    return Explanation(Reason.VACUUM_DUE if candidates else Reason.NOTHING_PAST, numbers, more)


def _notes(
    facts: VacuumFacts, selection: Selection, candidates: Sequence[Candidate], mode: VacuumMode
) -> Iterable[str]:
    """Notes on a damaged log, on files that must wait, and on unknown sizes."""
    if facts.log.snapshot.log.note:
        yield facts.log.snapshot.log.note
    if selection.over_limit_count:
        yield (
            f"{count_of(selection.over_limit_count, 'more file')} must wait for the next vacuum: "
            f"to bound memory, one vacuum deletes at most {MOST_FILES:,} files"
        )
    if mode == "LITE" and any(not each.size_bytes for each in candidates):
        yield "more bytes may be deleted than shown: the log lacks the sizes of some removed files"


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumOutcome:
    """A vacuum's plan, and its record in the journal.

    `spared` and `failed` contain the planned files that were not deleted, each with the reason.
    """

    plan: VacuumPlan
    record: VacuumRecord
    spared: Mapping[str, str] = field(default_factory=dict[str, str])
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and actual figures."""
        plan = self.plan
        record = self.record
        return (
            Figure("files", plan.file_count, record.deleted_files),
            Figure("bytes", plan.size_bytes, record.deleted_bytes),
            Figure("requests", sum(plan.requests.values()), sum(record.requests.values())),
            Figure("seconds", round(plan.seconds, 3), round(record.seconds, 3)),
            Figure("usd", round(plan.usd, 9), round(record.usd, 9)),
        )

    def as_json(self) -> dict[str, Any]:
        """The plan's JSON document, plus the actual figures with the prefix `actual_`."""
        record = self.record
        return {
            **self.plan.as_json(),
            "figures": figures_as_json(self.figures),
            "actual_files": record.deleted_files,
            "actual_bytes": record.deleted_bytes,
            "actual_is_at_most": record.is_at_most,
            "actual_requests": dict(record.requests),
            "actual_seconds": round(record.seconds, 3),
            "actual_usd": round(record.usd, 9),
            "spared": dict(self.spared),
            "failed": dict(self.failed),
            "spared_files": len(self.spared),
            "failed_files": len(self.failed),
            "list_requests_saved": record.lists_saved,
            "list_seconds_saved": round(record.lists_saved * SECONDS_PER_PAGE, 3),
        }
