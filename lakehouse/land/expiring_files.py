"""Finds landed files that a lifecycle rule deletes before they are loaded.

Loaded files stay where they landed, so a bucket usually has a rule that ends them. The same rule
also ends files that still wait for a load, and files that were set aside.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from lakehouse.base.errors import Refused
from lakehouse.base.stored_objects import LifecycleRule
from lakehouse.base.text import DAY_MS, count_of, printable
from lakehouse.lake.lake import Lake
from lakehouse.land.plan.batches import LandedFile
from lakehouse.store.s3 import read_lifecycle, s3_place

# A file counts if its rule deletes it within this time. S3 applies rules once a day.
_AHEAD_MS = 3 * DAY_MS


def expiring_sentence(
    lake: Lake, table: str, prefix: str, waiting: Sequence[LandedFile], *, now_ms: int
) -> str | None:
    """Names each rule that deletes files below `prefix` that no batch has loaded; `None` if none.

    `waiting` are these files. A rule counts if it deletes one of them within three days. A rule
    with a tag does not count, because it is unknown which files carry the tag.
    """
    place = s3_place(lake.store, prefix.rstrip("/"))
    if place is None or not waiting:
        return None
    store, folder = place
    try:
        rules = read_lifecycle(store)
    except Refused as refused:
        return f"it is unknown whether a lifecycle rule deletes waiting files: {refused}"
    sentences = list[str]()
    for rule in rules:
        expiring = [
            file
            for file in waiting
            if not rule.tags
            and f"{store.prefix}{folder}/{file.name}".startswith(rule.prefix)
            and _expires_ms(rule, file) - now_ms <= _AHEAD_MS
        ]
        if expiring:
            count = count_of(len(expiring), "file")
            verb = "is" if len(expiring) == 1 else "are"
            sentences.append(
                f"lifecycle rule {printable(rule.name)!r} deletes {count} that {verb} not loaded "
                f"within three days (for example {printable(expiring[0].name)}). Either run "
                f"lakehouse materialize {table}, or disable the rule"
            )
    return "; ".join(sentences) or None


def _expires_ms(rule: LifecycleRule, file: LandedFile) -> float:
    """When the rule deletes the file; infinite if it does not delete current objects."""
    for action in rule.actions:
        if not action.storage_class:
            word, value, *_ = action.when.split()
            if word == "after":  # `after 30 days`
                return file.modified_ms + int(value) * DAY_MS
            return datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() * 1000
    return float("inf")
