"""Plans which removed files of a table get the tag of a lifecycle rule, and which lose it.

Also the rule itself, and the harm that a bucket's rules would do to a table (check `lifecycle`).
Source: Amazon S3 user guide, "Lifecycle configuration elements", "Transitioning objects using
Amazon S3 Lifecycle"; API reference, GetBucketLifecycleConfiguration.

**Safety properties** (tests in `retain/plan/test_tiers.py`)
- A file is planned only if no other table, reader or kept version needs it, and if the classifier
  of the vacuums says that it is removed and within the retention. A live file is never planned.
- A file stays without the tag if its time of removal is unknown.
"""

from collections.abc import Sequence, Set

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.paths import name_in_table
from lakehouse.base.reasons import CheckResult, Explained, Reason
from lakehouse.base.stored_objects import LifecycleRule, Part, StoredObject
from lakehouse.base.text import DAY_MS, Document, count_of, printable
from lakehouse.vacuum.inventory.plan import ObjectClassifier
from lakehouse.vacuum.plan.candidates import VacuumFacts

# The tag of removed files that their table keeps for more than a month.
TIER_TAG = {"lakehouse-tier": "removed"}
_LOG = "_delta_log/"
# S3 moves no smaller object by default. Source: Amazon S3 user guide, "Transitioning objects"
MINIMUM_BYTES = 128 * 1024
# STANDARD_IA bills at least 30 days. A file that a vacuum deletes sooner is not tagged.
_LEAST_MS = 30 * DAY_MS
# One run tags at most this many files, oldest removal first.
MOST_FILES = 10_000


@frozen
class TierPlan(Explained):
    """The files of `table` at `version` that get the tag, and the needed files that lose it.

    `bytes` counts the sizes that the log has.
    """

    table: str
    version: int
    tag: tuple[str, ...]
    untag: tuple[str, ...]
    bytes: int


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
        bytes=size_bytes,
    )


def is_needed(facts: VacuumFacts, name: str) -> bool:
    """Whether the newest version or another table reads a file."""
    files = facts.table_files
    return name in files.live or facts.other_uses.may_read(files, name)


@frozen
class LiveObjects:
    """The objects in a table's `folder`, a key that ends in `/`, that must stay readable.

    - `names`: relative to `folder`.
    - `recorded`: files that may carry `TIER_TAG`, also those that are not live.
    - `archive`: the folder of the table's archive; empty if there is no archive.
    """

    table: str
    folder: str
    names: Set[str]
    recorded: Set[str] = frozenset()
    archive: str = ""


def tier_rule(prefix: str) -> Document:
    """The rule that moves tagged files below the lake's `prefix` to IA, then to Glacier.

    The days count from a file's creation. Both classes can be read without a restore, so older
    versions stay readable. Source: AWS, "Transitioning objects": 30 days until STANDARD_IA.
    """
    [(key, value)] = TIER_TAG.items()
    tag = {"Key": key, "Value": value}
    return {
        "ID": f"{key} {prefix}"[:255].strip(),
        "Status": "Enabled",
        "Filter": {"And": {"Prefix": prefix, "Tags": [tag]}} if prefix else {"Tag": tag},
        "Transitions": [
            {"Days": 30, "StorageClass": "STANDARD_IA"},
            {"Days": 90, "StorageClass": "GLACIER_IR"},
        ],
    }


def assess_lifecycle(rules: Sequence[LifecycleRule], live: LiveObjects) -> CheckResult:
    """Whether the rules spare the files that the table needs, its log and its archive.

    A rule that deletes them, or moves the files or the log where reads fail, is an error. So is
    such a rule for `TIER_TAG`, because a RESTORE or a shallow clone may need tagged files. A live
    file with the tag is a warning, and so are tagged files that no rule moves. The age of files
    does not matter, because a live file reaches every age. Rules for the tags of other programs are
    assumed to spare the table: no inventory lists tags.
    """
    harms = [harm for rule in rules for harm in _harms(rule, live)]
    problems = list(harms)
    tagged = live.recorded & live.names
    if tagged:
        problems.append(
            f"{count_of(len(tagged), 'live file')} of {live.table} may carry the tag of removed "
            f"files, for example {printable(min(tagged))}, because an older version was restored. "
            f"Use `lakehouse tiers {live.table}`, which removes the tag"
        )
    moves = any(
        rule.tags == TIER_TAG and live.folder.startswith(rule.prefix) and rule.actions
        for rule in rules
    )
    if live.recorded and not moves:
        problems.append(
            f"removed files of {live.table} are tagged, but no rule of the bucket moves them. Add "
            f"the rule that `lakehouse tiers {live.table}` prints"
        )
    rule_count = count_of(len(rules), "rule")
    passed = f"no rule of the bucket ({rule_count}) deletes or archives live files of {live.table}"
    return CheckResult(
        name="lifecycle",
        ok=not problems,
        sentence="; ".join(problems) or passed,
        is_error=bool(harms),
        numbers={"harmful_actions": len(harms), "tagged_live_files": len(tagged)},
    )


def _harms(rule: LifecycleRule, live: LiveObjects) -> list[str]:
    """A sentence for each action of a rule that harms the table."""
    if rule.tags and rule.tags != TIER_TAG:
        return []
    parts = list[str]()
    if rule.tags and rule.reaches(live.folder):
        parts.append(f"tagged files of {live.table}, which a RESTORE or a clone may need")
    matching = [name for name in live.names if f"{live.folder}{name}".startswith(rule.prefix)]
    if matching and not rule.tags:
        of_live = count_of(len(live.names), "live file")
        example = printable(min(matching))
        parts.append(f"{len(matching)} of {of_live} of {live.table} (for example {example})")
    if not rule.tags and rule.reaches(live.folder + _LOG):
        parts.append(f"the log of {live.table}")
    ends_archive = live.archive and not rule.tags and rule.reaches(live.archive)
    harms = list[str]()
    for action in rule.actions:
        verb = f"moves to {action.storage_class}" if action.storage_class else "deletes"
        harmed = [*parts] if action.is_harmful else []
        if ends_archive and not action.storage_class:
            harmed.append(f"the archive of {live.table}")
        if harmed:
            harms.append(
                f"rule {printable(rule.name)!r} (prefix {printable(rule.prefix)!r}) {verb} "
                f"{action.when}: {' and '.join(harmed)}. Use a prefix or a tag that excludes them, "
                "or disable the rule"
            )
    return harms
