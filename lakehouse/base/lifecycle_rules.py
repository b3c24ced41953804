"""The lifecycle rules of a bucket.

Source: Amazon S3 user guide, "Lifecycle configuration elements"; API reference,
GetBucketLifecycleConfiguration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.base.stored_objects import MUST_BE_RESTORED
from lakehouse.base.text import count_of


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
    """One enabled rule. Filters by size are ignored, so that the rule matches more objects."""

    name: str
    prefix: str
    tags: Mapping[str, str]
    actions: tuple[LifecycleAction, ...]

    def reaches(self, folder: str) -> bool:
        """Whether the rule may apply to objects below `folder`, which ends in `/`."""
        return folder.startswith(self.prefix) or self.prefix.startswith(folder)


def parse_rules(answer: Mapping[str, Any]) -> tuple[LifecycleRule, ...]:
    """The enabled rules in S3's response; an empty response means no rules."""
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
        actions=tuple(actions),
    )


def _when(element: Mapping[str, Any]) -> str:
    """`after 30 days` or `on 2026-12-01`; empty for an element without a time."""
    if "Days" in element:
        return f"after {count_of(int(element['Days']), 'day')}"
    return f"on {str(element['Date'])[:10]}" if "Date" in element else ""
