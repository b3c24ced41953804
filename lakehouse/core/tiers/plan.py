"""Plans which dead files of a table are tagged for a colder storage class, and whether that pays.

A dead file is a file that a commit removed, and that waits for its vacuum.

**Safety properties** (tests in `core/tiers/test_plan.py`)
- A file is planned only if no other table reads it, and if the classifier of the vacuums says that
  it is removed and within the retention. A live file is never planned.
- A file stays in its class if its time of removal, age or class is unknown, or if a reader or a
  kept version still needs it.
- `still_dead` repeats these checks with newer facts, except those of removal time, age and class.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from lakehouse.core.errors import Refused
from lakehouse.core.inventory.classify import ObjectClassifier
from lakehouse.core.inventory.objects import Part, StoredObject, plausible_ms
from lakehouse.core.inventory.table_roots import Owners
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.tiers.lifecycle_rules import MINIMUM_BYTES
from lakehouse.core.tiers.storage_class_costs import TierPrices, break_even_days, move_usd, stay_usd
from lakehouse.core.units import DAY_MS
from lakehouse.core.vacuum.candidates import classifier_of
from lakehouse.core.vacuum.facts import VacuumFacts

# The default classes: an older version of a table can be read from them without a restore.
READ_AT_ONCE = ("STANDARD_IA", "GLACIER_IR")
TIER_CLASSES = (*READ_AT_ONCE, "GLACIER", "DEEP_ARCHIVE")
# One run tags at most this many files: its record names all, and each lifecycle check reads it.
MOST_FILES = 10_000
# The vacuum runs once a day, so a file stays for up to a day after its retention.
_VACUUM_DAYS = 1
_SIZES = (MINIMUM_BYTES, 1024**2, 16 * 1024**2, 128 * 1024**2, 1024**3)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFile:
    """A removed file in STANDARD. `days`: the expected number of days until a vacuum deletes it."""

    name: str
    size_bytes: int
    modified_ms: int
    days: float
    age_days: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TierRecord:
    """One run of `lakehouse tiers apply` on a table, as the journal stores it.

    - `tagged`: the tagged files, with their sizes in bytes.
    - `untagged`: needed files from which the tag was removed.
    - `spared`: planned files that were not tagged, with the reason.
    - `predicted_usd`: the cost of the planned files with all fees, until the vacuum.
    - `saved_usd`: what the move saves, compared with no move.
    - `is_complete`: the run ended. Otherwise, `tagged` are the planned files, tagged or not.
    """

    started_ms: int
    ended_ms: int
    storage_class: str
    version: int
    tagged: Mapping[str, int]
    untagged: Sequence[str] = ()
    spared: Mapping[str, str] = field(default_factory=dict[str, str])
    predicted_usd: float = 0.0
    saved_usd: float = 0.0
    requests: Mapping[str, int] = field(default_factory=dict[str, int])
    is_complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan(Explained):
    """The dead files of `table` at `version` that are cheaper in `storage_class`.

    - `files`: the files to tag. Without files, `reason` says why.
    - `dead_count`, `dead_bytes`: all files in `dead_files`, also those that would not pay.
    - `stay_usd`, `move_usd`: the cost of `files` until the vacuum, without a move and with one.
    - `break_even`: by class and by size in bytes, the days after which a move pays (`None`: never).
    - `untag`: files that carry the tag, but are live again, or read by another table.
    - `left_count`: the number of files that would also pay, but exceed the limit of one run.
    - `rule_classes`: the classes of `files` and of earlier tagged files. Each needs a lifecycle
      rule.
    """

    table: str
    version: int
    report: str
    storage_class: str
    files: tuple[DeadFile, ...]
    dead_count: int
    dead_bytes: int
    stay_usd: float
    move_usd: float
    break_even: Mapping[str, Mapping[int, int | None]]
    untag: tuple[str, ...] = ()
    left_count: int = 0
    rule_classes: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Total size of the files to tag."""
        return sum(each.size_bytes for each in self.files)

    @property
    def saved_usd(self) -> float:
        """What the move saves until the vacuum, with all fees."""
        return self.stay_usd - self.move_usd

    def as_json(self) -> dict[str, Any]:
        """The plan in its documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "report": self.report,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "storage_class": self.storage_class,
            "files": len(self.files),
            "bytes": self.size_bytes,
            "dead_files": self.dead_count,
            "dead_bytes": self.dead_bytes,
            "stay_usd": round(self.stay_usd, 9),
            "move_usd": round(self.move_usd, 9),
            "saved_usd": round(self.saved_usd, 9),
            "files_left": self.left_count,
            "rule_classes": list(self.rule_classes),
            "break_even": [
                {"storage_class": name, "bytes": size_bytes, "days": days}
                for name, by_size in self.break_even.items()
                for size_bytes, days in by_size.items()
            ],
            "untag": list(self.untag),
            "paths": [each.name for each in self.files],
        }


def dead_files(
    facts: VacuumFacts, objects: Iterable[StoredObject], *, now_ms: int
) -> list[DeadFile]:
    """The removed files in STANDARD that wait for their vacuum, by name.

    Raises:
        Refused: the retention is unknown.
    """
    retention_ms = facts.table_files.retention_ms
    if retention_ms is None:
        raise Refused(
            f"tiers of {facts.table}: its retention cannot be understood, so it is unknown how "
            "long removed files stay. Use a value such as 'interval 7 days'"
        )
    is_dead = _dead_by(facts, now_ms=now_ms)
    owners = Owners({facts.table, *facts.tables})
    folder = f"{facts.lake_prefix}{facts.table}/"
    files = list[DeadFile]()
    for each in objects:
        name = each.key.removeprefix(folder)
        modified_ms = plausible_ms(each.modified_ms, now_ms=now_ms)
        removed_ms = facts.table_files.tombstones.get(name)
        is_own = owners.table_of(each.key.removeprefix(facts.lake_prefix)) == facts.table
        if modified_ms is None or removed_ms is None or not is_own:
            continue
        if each.storage_class == "STANDARD" and is_dead(name, each):
            file = DeadFile(
                name=name,
                size_bytes=each.size_bytes,
                modified_ms=modified_ms,
                days=(removed_ms + retention_ms - now_ms) / DAY_MS + _VACUUM_DAYS,
                age_days=(now_ms - modified_ms) / DAY_MS,
            )
            files.append(file)
    return sorted(files, key=lambda file: file.name)


def plan_tiers(
    facts: VacuumFacts,
    dead: Sequence[DeadFile],
    prices: TierPrices,
    *,
    classes: Sequence[str] = READ_AT_ONCE,
    untag: Sequence[str] = (),
) -> TierPlan:
    """The plan for the class that saves the most or, if none does, would pay the soonest."""
    paying = {name: _paying(dead, prices, name) for name in classes}
    largest = max((file.size_bytes for file in dead), default=_SIZES[-1])

    def merit(name: str) -> tuple[float, float]:
        days = break_even_days(prices, name, largest)
        return sum(saved for saved, _ in paying[name]), -(inf if days is None else days)

    best = max(classes, key=merit)
    chosen = sorted(paying[best], key=lambda each: (-each[0], each[1].name))
    files = [file for _, file in chosen[:MOST_FILES]]
    stay = sum(stay_usd(prices, file.size_bytes, days=file.days) for file in files)
    move = sum(_move_usd(prices, best, file) for file in files)
    explanation = _costs_more(facts, dead, prices, best)
    if files:
        explanation = _pays(files, best, stay, move)
    return TierPlan(
        explanation=explanation,
        table=facts.table,
        version=facts.table_files.version,
        report=facts.report.name if facts.report else "",
        storage_class=best,
        files=tuple(sorted(files, key=lambda file: file.name)),
        dead_count=len(dead),
        dead_bytes=sum(file.size_bytes for file in dead),
        stay_usd=stay,
        move_usd=move,
        break_even={
            name: {size: break_even_days(prices, name, size) for size in _SIZES} for name in classes
        },
        untag=tuple(sorted(untag)),
        left_count=len(chosen) - len(files),
    )


def still_dead(
    facts: VacuumFacts, files: Iterable[DeadFile], *, now_ms: int
) -> tuple[list[DeadFile], dict[str, str]]:
    """The planned files that are still dead by newer facts, and the reasons to spare the others."""
    is_dead = _dead_by(facts, now_ms=now_ms)
    allowed = list[DeadFile]()
    spared = dict[str, str]()
    for file in files:
        stored = StoredObject(
            bucket="", key="", size_bytes=file.size_bytes, modified_ms=file.modified_ms
        )
        if is_dead(file.name, stored):
            allowed.append(file)
        else:
            users = f"version {facts.table_files.version}, a reader or another table"
            spared[file.name] = f"needed by {users}, or expired"
    return allowed, spared


def _dead_by(facts: VacuumFacts, *, now_ms: int) -> Callable[[str, StoredObject], bool]:
    """Returns a function: is an object a dead file that no reader and no kept version needs?"""
    classifier: ObjectClassifier = classifier_of(facts, now_ms=now_ms, horizon_ms=None)
    tombstones = facts.table_files.tombstones
    kept_for_versions = facts.kept_for_versions
    needed_since_ms = facts.needed_since_ms

    def is_dead(name: str, stored: StoredObject) -> bool:
        removed_ms = tombstones.get(name) or 0
        has_reader = needed_since_ms is not None and removed_ms >= needed_since_ms
        is_kept = has_reader or name in kept_for_versions
        return classifier.part_of(name, stored) is Part.TOMBSTONED_KEPT and not is_kept

    return is_dead


def _paying(
    dead: Iterable[DeadFile], prices: TierPrices, storage_class: str
) -> list[tuple[float, DeadFile]]:
    """The files of at least `MINIMUM_BYTES` that a move makes cheaper, each with what it saves."""
    paying = list[tuple[float, DeadFile]]()
    for file in dead:
        stay = stay_usd(prices, file.size_bytes, days=file.days)
        saved_usd = stay - _move_usd(prices, storage_class, file)
        if file.size_bytes >= MINIMUM_BYTES and saved_usd > 0:
            paying.append((saved_usd, file))
    return paying


def _move_usd(prices: TierPrices, storage_class: str, file: DeadFile) -> float:
    return move_usd(prices, storage_class, file.size_bytes, days=file.days, age_days=file.age_days)


def _pays(files: Sequence[DeadFile], storage_class: str, stay: float, move: float) -> Explanation:
    days = sorted({round(file.days) for file in files})
    return Reason.TIER_PAYS.explain(
        files=len(files),
        bytes=sum(file.size_bytes for file in files),
        days=f"{days[0]} to {days[-1]}" if len(days) > 1 else f"{days[0]}",
        stay=f"{stay:.6f}",
        storage_class=storage_class,
        move=f"{move:.6f}",
        saved=f"{stay - move:.6f}",
    )


def _costs_more(
    facts: VacuumFacts, dead: Sequence[DeadFile], prices: TierPrices, storage_class: str
) -> Explanation:
    largest = max((file.size_bytes for file in dead), default=_SIZES[-1])
    days = break_even_days(prices, storage_class, largest)
    retention_ms = facts.table_files.retention_ms or 0
    return Reason.TIER_COSTS_MORE.explain(
        files=len(dead),
        bytes=sum(file.size_bytes for file in dead),
        storage_class=storage_class,
        days=f"{retention_ms / DAY_MS + _VACUUM_DAYS:.0f}",
        largest=largest,
        pays="never pays there" if days is None else f"pays there only after {days} days",
    )
