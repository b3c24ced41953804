"""A bucket's lifecycle rules, the harm that they would do to a table, and the rule on our tag.

Source: Amazon S3 user guide, "Lifecycle configuration elements", "Transitioning objects using
Amazon S3 Lifecycle"; API reference, GetBucketLifecycleConfiguration.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse.core.inventory.objects import MUST_BE_RESTORED
from lakehouse.core.text import count_of, printable, size_text

# The tag that `lakehouse tiers apply` sets on dead files: removed files that wait for their vacuum.
# The tag's value is the storage class into which they move.
TIER_TAG = "lakehouse-tier"
# S3 moves no smaller object, except into GLACIER and DEEP_ARCHIVE with `varies_by_storage_class`.
# A size in a rule's filter takes precedence.
# Source: Amazon S3 user guide, "Transitioning objects"
MINIMUM_BYTES = 128 * 1024
_ALL_CLASSES = "all_storage_classes_128K"
_LOG = "_delta_log/"


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleAction:
    """What a rule does to current objects: it deletes them, or moves them to `storage_class`.

    `storage_class` is empty for a deletion. `when`: for example `after 30 days`.
    """

    when: str
    storage_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One rule. `above_bytes` and `below_bytes` are exclusive; `None` means no limit."""

    name: str
    is_enabled: bool
    prefix: str = ""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    above_bytes: int | None = None
    below_bytes: int | None = None
    actions: tuple[LifecycleAction, ...] = ()
    abort_days: int | None = None

    def reaches(self, folder: str) -> bool:
        """Whether the rule may apply to objects below `folder`, which ends in `/`."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)

    def fits(self, key: str, size_bytes: int | None) -> bool:
        """Whether prefix and size filters match an object; an unknown size matches."""
        if not key.startswith(self.prefix):
            return False
        if size_bytes is None:
            return True
        is_above = self.above_bytes is None or size_bytes > self.above_bytes
        is_below = self.below_bytes is None or size_bytes < self.below_bytes
        return is_above and is_below

    @property
    def has_size_filter(self) -> bool:
        """Whether the rule itself limits the size, so that S3's minimum does not apply."""
        return self.above_bytes is not None or self.below_bytes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """A bucket's lifecycle configuration.

    `documents` are the rules as S3 returned them. `minimum_size` is S3's
    `TransitionDefaultMinimumObjectSize`, or empty if S3 did not return it.
    """

    documents: tuple[Mapping[str, Any], ...] = ()
    minimum_size: str = ""

    @property
    def rules(self) -> tuple[LifecycleRule, ...]:
        """The enabled rules."""
        rules = map(parse_rule, self.documents)
        return tuple(rule for rule in rules if rule.is_enabled)

    def with_rule(self, document: Mapping[str, Any]) -> "Lifecycle":
        """The configuration with one rule added, or replaced if there is one of the same ID."""
        others = [each for each in self.documents if each.get("ID") != document["ID"]]
        return replace(self, documents=(*others, document))

    def aborts_uploads(self, folder: str) -> bool:
        """Whether a rule ends all incomplete multipart uploads below `folder`."""
        return any(
            rule.abort_days is not None and folder.startswith(rule.prefix) for rule in self.rules
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveObjects:
    """The objects in a table's `folder` that must stay readable, by names relative to `folder`.

    The table's newest version needs them. Objects with `TIER_TAG` are included even if only another
    table needs them.

    - `folder`: a key that ends in `/`.
    - `sizes`: the size of each object; `None` if unknown.
    - `tagged`: the value of the tag, for each of these objects with `TIER_TAG`.
    - `archive`: the folder of the table's archive; empty if there is no archive.
    """

    table: str
    folder: str
    sizes: Mapping[str, int | None]
    tagged: Mapping[str, str] = field(default_factory=dict[str, str])
    archive: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """What one action of a rule would do to a table's live files, its log and its archive."""

    rule: LifecycleRule
    action: LifecycleAction
    names: tuple[str, ...]
    size_bytes: int
    touches_log: bool
    touches_archive: bool = False

    def sentence(self, live: LiveObjects) -> str:
        """The harm, and what to do."""
        subject = f"rule {self.rule.name!r} (prefix {self.rule.prefix!r}"
        for key, value in self.rule.tags.items():
            subject += f", tag {key}={value}"
        parts = list[str]()
        if self.names:
            live_files = count_of(len(live.sizes), "live file")
            example = printable(self.names[0])
            parts.append(
                f"{len(self.names)} of {live_files} of {live.table} ({size_text(self.size_bytes)}, "
                f"for example {example})"
            )
        if self.touches_log:
            parts.append(f"the log of {live.table}")
        if self.touches_archive:
            parts.append(f"the archive of {live.table}")
        folders = list[str]()
        if self.names or self.touches_log:
            folders.append(live.folder)
        if self.touches_archive:
            folders.append(live.archive)
        objects = " and ".join(parts)
        effect = f"deletes {objects} {self.action.when}"
        if self.action.storage_class:
            effect = f"moves {objects} to {self.action.storage_class} {self.action.when}"
        return (
            f"{printable(subject)}) {effect}. Use a prefix or a tag that excludes "
            f"{' and '.join(folders)}, or disable the rule"
        )


def parse_lifecycle(answer: Mapping[str, Any]) -> Lifecycle:
    """The configuration in S3's response; an empty response means no rules."""
    return Lifecycle(
        documents=tuple(answer.get("Rules", ())),
        minimum_size=str(answer.get("TransitionDefaultMinimumObjectSize", "")),
    )


def parse_rule(document: Mapping[str, Any]) -> LifecycleRule:
    """One rule. An unknown kind of filter is ignored, so that the rule matches more objects."""
    condition = document.get("Filter") or {"Prefix": document.get("Prefix", "")}
    condition = {**condition, **condition.get("And", {})}
    tags = list(condition.get("Tags", ()))
    if "Tag" in condition:
        tags.append(condition["Tag"])
    actions = list[LifecycleAction]()
    expires = _when(document.get("Expiration", {}))
    if expires:
        actions.append(LifecycleAction(when=expires))
    for transition in document.get("Transitions", ()):
        storage_class = str(transition.get("StorageClass", ""))
        action = LifecycleAction(
            when=_when(transition) or "at an unknown time",
            storage_class=storage_class,
        )
        actions.append(action)
    return LifecycleRule(
        name=str(document.get("ID", "(without ID)")),
        is_enabled=document.get("Status") == "Enabled",
        prefix=str(condition.get("Prefix", "")),
        tags={str(tag["Key"]): str(tag["Value"]) for tag in tags},
        above_bytes=condition.get("ObjectSizeGreaterThan"),
        below_bytes=condition.get("ObjectSizeLessThan"),
        actions=tuple(actions),
        abort_days=document.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation"),
    )


def _when(element: Mapping[str, Any]) -> str:
    """`after 30 days` or `on 2026-12-01`; empty for an element without a time."""
    if "Days" in element:
        return f"after {count_of(int(element['Days']), 'day')}"
    return f"on {str(element['Date'])[:10]}" if "Date" in element else ""


def harms_of(lifecycle: Lifecycle, live: LiveObjects) -> list[Harm]:
    """Every action that would delete live files, or make them unreadable without a restore.

    The same actions on the log count as well, and so do actions that would delete the table's
    archive. The age of the files does not matter, because a file that stays live reaches every age.
    A rule with a tag counts only for files that are known to carry the tag, never for the log and
    the archive; see `rules_by_unknown_tags`.
    """
    harms = list[Harm]()
    for rule in lifecycle.rules:
        for action in _harmful_actions(rule):
            names = _matching(lifecycle, rule, action, live) if rule.reaches(live.folder) else []
            touches_log = not rule.tags and rule.reaches(live.folder + _LOG)
            may_delete = not rule.tags and not action.storage_class
            touches_archive = may_delete and bool(live.archive) and rule.reaches(live.archive)
            if names or touches_log or touches_archive:
                size_bytes = sum(live.sizes[name] or 0 for name in names)
                harm = Harm(
                    rule=rule,
                    action=action,
                    names=tuple(names),
                    size_bytes=size_bytes,
                    touches_log=touches_log,
                    touches_archive=touches_archive,
                )
                harms.append(harm)
    return harms


def rules_by_unknown_tags(lifecycle: Lifecycle, live: LiveObjects) -> list[str]:
    """The names of harmful rules that select objects by a tag of another program.

    Whether live files carry such tags is unknown, because no inventory report lists tags.
    """
    names = list[str]()
    for rule in lifecycle.rules:
        selects_unknown_tag = bool(rule.tags) and TIER_TAG not in rule.tags
        if selects_unknown_tag and _harmful_actions(rule) and rule.reaches(live.folder):
            names.append(rule.name)
    return names


def _harmful_actions(rule: LifecycleRule) -> Sequence[LifecycleAction]:
    return [
        action
        for action in rule.actions
        if not action.storage_class or action.storage_class in MUST_BE_RESTORED
    ]


def _matching(
    lifecycle: Lifecycle, rule: LifecycleRule, action: LifecycleAction, live: LiveObjects
) -> list[str]:
    """The live files to which a rule's action applies, sorted by name."""
    minimum_bytes = 0
    has_minimum = lifecycle.minimum_size == _ALL_CLASSES and not rule.has_size_filter
    if action.storage_class and has_minimum:
        minimum_bytes = MINIMUM_BYTES
    names = list[str]()
    for name, size_bytes in sorted(live.sizes.items()):
        own_tags = {TIER_TAG: live.tagged[name]} if name in live.tagged else {}
        is_tagged = rule.tags.items() <= own_tags.items()
        is_large = size_bytes is None or size_bytes >= minimum_bytes
        if is_tagged and is_large and rule.fits(live.folder + name, size_bytes):
            names.append(name)
    return names


def tier_rule(prefix: str, storage_class: str) -> dict[str, Any]:
    """The lifecycle rule that moves a lake's tagged dead files into a storage class.

    `prefix` is the lake's prefix in the bucket. Source: AWS, "Transitioning objects": an object
    moves into STANDARD_IA no earlier than 30 days after its creation.
    """
    days = 30 if storage_class == "STANDARD_IA" else 0
    tag = {"Key": TIER_TAG, "Value": storage_class}
    condition = {"And": {"Prefix": prefix, "Tags": [tag]}} if prefix else {"Tag": tag}
    return {
        "ID": f"{TIER_TAG} {storage_class} {prefix}"[:255],
        "Status": "Enabled",
        "Filter": condition,
        "Transitions": [{"Days": days, "StorageClass": storage_class}],
    }
