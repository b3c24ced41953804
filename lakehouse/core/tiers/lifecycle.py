"""A bucket's lifecycle rules, the harm that they would do to a table, and the check `lifecycle`.

Source: Amazon S3 user guide, "Lifecycle configuration elements", "Transitioning objects using
Amazon S3 Lifecycle"; API reference, GetBucketLifecycleConfiguration.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from lakehouse.core.check_result import CheckResult
from lakehouse.core.inventory.objects import MUST_BE_RESTORED
from lakehouse.core.text import count_of, printable

# The tag of removed files that their table keeps for more than a month.
TIER_TAG = {"lakehouse-tier": "removed"}
_LOG = "_delta_log/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleAction:
    """What a rule does to current objects: it moves them to `storage_class`, or deletes them ("").

    `when`: for example `after 30 days`.
    """

    when: str
    storage_class: str = ""

    @property
    def is_harmful(self) -> bool:
        """Whether objects cannot be read afterwards, at least not without a restore."""
        return not self.storage_class or self.storage_class in MUST_BE_RESTORED


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One enabled rule. `above_bytes` and `below_bytes` are exclusive; `None` means no limit."""

    name: str
    prefix: str
    tags: Mapping[str, str]
    above_bytes: int | None
    below_bytes: int | None
    actions: tuple[LifecycleAction, ...]

    def reaches(self, folder: str) -> bool:
        """Whether the rule may apply to objects below `folder`, which ends in `/`."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)

    def fits(self, key: str, size_bytes: int | None) -> bool:
        """Whether prefix and size filters match an object; an unknown size matches."""
        if size_bytes is None or not key.startswith(self.prefix):
            return key.startswith(self.prefix)
        is_above = self.above_bytes is None or size_bytes > self.above_bytes
        return is_above and (self.below_bytes is None or size_bytes < self.below_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveObjects:
    """The objects in a table's `folder` that must stay readable, by names relative to `folder`.

    - `folder`: a key that ends in `/`.
    - `sizes`: the size of each object; `None` if unknown.
    - `recorded`: files that may carry `TIER_TAG`, also those that are not live.
    - `archive`: the folder of the table's archive; empty if there is no archive.
    """

    table: str
    folder: str
    sizes: Mapping[str, int | None]
    recorded: Set[str] = frozenset()
    archive: str = ""


def tier_rule(prefix: str) -> dict[str, Any]:
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


def parse_rules(answer: Mapping[str, Any]) -> tuple[LifecycleRule, ...]:
    """The enabled rules in S3's response; an empty response means no rules.

    An unknown kind of filter is ignored, so that its rule matches more objects.
    """
    documents = answer.get("Rules", ())
    return tuple(_parse_rule(each) for each in documents if each.get("Status") == "Enabled")


def _parse_rule(document: Mapping[str, Any]) -> LifecycleRule:
    condition = document.get("Filter") or {"Prefix": document.get("Prefix", "")}
    condition = {**condition, **condition.get("And", {})}
    tags = [*condition.get("Tags", ()), *filter(None, [condition.get("Tag")])]
    actions = list[LifecycleAction]()
    if expires := _when(document.get("Expiration", {})):
        actions.append(LifecycleAction(when=expires))
    for transition in document.get("Transitions", ()):
        when = _when(transition) or "at an unknown time"
        storage_class = str(transition.get("StorageClass", ""))
        actions.append(LifecycleAction(when=when, storage_class=storage_class))
    return LifecycleRule(
        name=str(document.get("ID", "(without ID)")),
        prefix=str(condition.get("Prefix", "")),
        tags={str(tag["Key"]): str(tag["Value"]) for tag in tags},
        above_bytes=condition.get("ObjectSizeGreaterThan"),
        below_bytes=condition.get("ObjectSizeLessThan"),
        actions=tuple(actions),
    )


def _when(element: Mapping[str, Any]) -> str:
    """`after 30 days` or `on 2026-12-01`; empty for an element without a time."""
    if "Days" in element:
        return f"after {count_of(int(element['Days']), 'day')}"
    return f"on {str(element['Date'])[:10]}" if "Date" in element else ""


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
    tagged = live.recorded & live.sizes.keys()
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
    names = list[str]()
    if not rule.tags:
        sizes = live.sizes
        names = sorted(name for name in sizes if rule.fits(live.folder + name, sizes[name]))
    harms = list[str]()
    for action in rule.actions:
        deletes = not action.storage_class
        parts = list[str]()
        if action.is_harmful and rule.tags and rule.reaches(live.folder):
            parts.append(f"tagged files of {live.table}, which a RESTORE or a clone may need")
        if action.is_harmful and names:
            of_live = count_of(len(live.sizes), "live file")
            example = printable(names[0])
            parts.append(f"{len(names)} of {of_live} of {live.table} (for example {example})")
        if action.is_harmful and not rule.tags and rule.reaches(live.folder + _LOG):
            parts.append(f"the log of {live.table}")
        if deletes and not rule.tags and live.archive and rule.reaches(live.archive):
            parts.append(f"the archive of {live.table}")
        if parts:
            verb = "deletes" if deletes else "moves"
            target = "" if deletes else f" to {action.storage_class}"
            harms.append(
                f"rule {printable(rule.name)!r} (prefix {printable(rule.prefix)!r}) {verb} "
                f"{' and '.join(parts)}{target} {action.when}. Use a prefix or a tag that excludes "
                "them, or disable the rule"
            )
    return harms
