"""Plans which removed files of a table get the tag of a lifecycle rule, and which lose it.

**Safety properties** (tests in `retain/plan/test_tiers.py`)
- A file is planned only if no other table, reader or kept version needs it, and if the classifier
  of the vacuums says that it is removed and within the retention. A live file is never planned.
- A file stays without the tag if its time of removal is unknown.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from lakehouse.base.errors import Refused
from lakehouse.base.paths import name_in_table
from lakehouse.base.reasons import Explained, Reason
from lakehouse.base.stored_objects import Part, StoredObject
from lakehouse.base.text import DAY_MS
from lakehouse.retain.plan.lifecycle import tier_rule
from lakehouse.vacuum.inventory.plan.reconcile import ObjectClassifier
from lakehouse.vacuum.plan.candidates import VacuumFacts

# S3 moves no smaller object by default. Source: Amazon S3 user guide, "Transitioning objects"
MINIMUM_BYTES = 128 * 1024
# STANDARD_IA bills at least 30 days. A file that a vacuum deletes sooner is not tagged.
_LEAST_MS = 30 * DAY_MS
# One run tags at most this many files, oldest removal first.
MOST_FILES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan(Explained):
    """The files of `table` at `version` that get the tag, and the needed files that lose it.

    `size_bytes` counts the sizes that the log has. `rule` is the lifecycle rule for the bucket.
    """

    table: str
    version: int
    tag: tuple[str, ...]
    untag: tuple[str, ...]
    size_bytes: int
    rule: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The plan in its documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "tag": list(self.tag),
            "untag": list(self.untag),
            "bytes": self.size_bytes,
            "rule": self.rule,
        }


def plan_tiers(facts: VacuumFacts, tagged: Set[str], *, now_ms: int) -> TierPlan:
    """The plan for a table. `tagged` are the names that may carry the tag now.

    Raises:
        Refused: the retention is unknown.
    """
    retention_ms = facts.table_files.retention_ms
    if retention_ms is None:
        raise Refused(
            f"tiers of {facts.table}: its retention cannot be understood, so it is unknown how "
            "long removed files stay. Use a value such as 'interval 90 days'"
        )
    sizes = {name_in_table(stone.path): stone.size_bytes for stone in facts.log.snapshot.tombstones}
    classifier = ObjectClassifier(facts.table_files, facts.other_uses, now_ms=now_ms)
    stored = StoredObject(bucket="", key="", size_bytes=0, modified_ms=0)
    due = dict[str, int]()
    for name, removed_ms in facts.table_files.removed.items():
        if removed_ms is None or removed_ms + retention_ms - now_ms < _LEAST_MS:
            continue
        size_bytes = sizes.get(name)
        is_small = size_bytes is not None and size_bytes < MINIMUM_BYTES
        has_reader = facts.needed_since_ms is not None and removed_ms >= facts.needed_since_ms
        if is_small or has_reader or name in tagged or name in facts.kept_for_versions:
            continue
        if classifier.part_of(name, stored) is Part.TOMBSTONED_KEPT:
            due[name] = removed_ms
    oldest_first = sorted(due, key=lambda name: (due[name], name))[:MOST_FILES]
    untag = tuple(sorted(name for name in tagged if is_needed(facts, name)))
    size_bytes = sum(sizes.get(name) or 0 for name in oldest_first)
    explanation = Reason.NOTHING_TO_TIER.explain(tagged=len(tagged))
    if oldest_first or untag:
        explanation = Reason.TIER_DUE.explain(
            files=len(oldest_first), bytes=size_bytes, untag=len(untag)
        )
    return TierPlan(
        explanation=explanation,
        table=facts.table,
        version=facts.table_files.version,
        tag=tuple(oldest_first),
        untag=untag,
        size_bytes=size_bytes,
        rule=tier_rule(facts.lake_prefix),
    )


def is_needed(facts: VacuumFacts, name: str) -> bool:
    """Whether the newest version or another table reads a file."""
    files = facts.table_files
    return name in files.live or facts.other_uses.may_read(files, name)
