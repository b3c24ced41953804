"""Objects in storage, their relation to tables, and a bucket's lifecycle rules.

Source: Amazon S3 user guide, "Lifecycle configuration elements"; API reference,
GetBucketLifecycleConfiguration.
"""

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Protocol

from lakehouse.base.frozen import frozen
from lakehouse.base.text import DAY_MS, HOUR_MS, count_of


@frozen
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


@frozen
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


# Amazon S3 opened in March 2006, so an earlier time must be in another unit.
_FIRST_MS = 1_141_171_200_000

# The configuration of our own scans. All others are configurations of reports by AWS.
SCAN = "lakehouse-scan"
# A listing may lack files that were written in this period before its own time. For our own, it is
# a minute, because clocks differ and some stores round times down. For reports by AWS, it is an
# hour, because they are eventually consistent.
SETTLED_MS = 60_000
_SETTLED_AT_AWS_MS = 3_600_000
# The age limit of an inventory for a vacuum, and the age up to which our daily scan is fresh: a
# day, and two hours for listing and queueing.
MAX_AGE_HOURS = 26.0
# Objects in these storage classes must be restored before they can be read.
# Source: Amazon S3 API reference, GetObject, InvalidObjectState.
MUST_BE_RESTORED = frozenset({"GLACIER", "DEEP_ARCHIVE"})
# The maximum number of keys in one page of a listing.
# Source: Amazon S3 API reference, ListObjectsV2.
PAGE_KEYS = 1_000
# The end of the name of a folder marker that EMR or older Hadoop writes.
FOLDER_SUFFIX = "_$folder$"
# The temporary name of a file while a disk store writes it; a killed write leaves it behind.
UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.lakehouse-put")


_SIZE = attrgetter("size_bytes")


class Sized(Protocol):
    """A file, or anything else with a size in bytes."""

    @property
    def size_bytes(self) -> int:
        """The size."""
        ...


def total_bytes(items: Iterable[Sized]) -> int:
    """The size of all items together."""
    return sum(map(_SIZE, items))


@frozen
class StoredFile:
    """A file in a store.

    `name` is relative to the root and never URL-encoded. `etag` changes with the content, and is
    empty if the store has no ETags. `storage_class` is S3's storage class, or empty if the response
    has none, as for S3 Standard in HeadObject.
    """

    name: str
    size_bytes: int
    modified_ms: int
    etag: str = ""
    storage_class: str = ""


@frozen
class StoredObject:
    """One row of an inventory: an object, or one version of an object.

    Fields that a report lacks are `None`. `key` is decoded. `modified_ms` is `None` if the
    recorded time is implausible. `is_dir`: the object only marks a folder. `archive_tier` is the
    access tier of S3 Intelligent-Tiering. `is_latest` and `is_delete_marker` are `None` in a report
    that shows only current versions. No inventory shows unfinished uploads.
    """

    bucket: str
    key: str
    size_bytes: int
    modified_ms: int | None
    is_dir: bool = False
    storage_class: str | None = None
    archive_tier: str | None = None
    is_latest: bool | None = None
    is_delete_marker: bool | None = None
    version_id: str | None = None

    @property
    def is_cold(self) -> bool:
        """Whether a read incurs a retrieval fee, or moves the object to a more expensive tier."""
        is_warm_tier = self.archive_tier == "FREQUENT"
        return self.storage_class not in (None, "STANDARD", "EXPRESS_ONEZONE") and not is_warm_tier

    @property
    def is_archived(self) -> bool:
        """Whether the object must be restored before it can be read.

        Source: Amazon S3 user guide, "S3 Intelligent-Tiering access tiers": true for all archive
        tiers except the instant access tier.
        """
        tier = self.archive_tier or ""
        is_in_tier = tier.startswith(("ARCHIVE", "DEEP_ARCHIVE")) and "INSTANT" not in tier
        return self.storage_class in MUST_BE_RESTORED or is_in_tier


@frozen
class Inventory:
    """A complete inventory in the inventory table: a scan of ours, or a report of AWS.

    `name` is `<configuration>/<stamp>`. `created_ms` is the time at which the listing began.
    Objects that were written later may be missing. `files` are names in the store. While an
    inventory is loaded, its counts are 0.
    """

    name: str
    created_ms: int
    object_count: int = 0
    size_bytes: int = 0
    files: tuple[str, ...] = ()

    @property
    def configuration(self) -> str:
        """`SCAN`, or the inventory configuration at AWS."""
        return self.name.partition("/")[0]

    @property
    def settled_ms(self) -> int:
        """The inventory contains every stored file that was written before this time."""
        is_scan = self.configuration == SCAN
        return self.created_ms - (SETTLED_MS if is_scan else _SETTLED_AT_AWS_MS)

    def age_hours(self, now_ms: int) -> float:
        """The hours since the listing began."""
        return (now_ms - self.created_ms) / HOUR_MS


class Part(Enum):
    """The relation of an object to its table. The value is the text shown to people."""

    LIVE = "data files of the newest version"
    LENT = "files that another table reads (a shallow clone, or a table in a parent folder)"
    TOMBSTONED_KEPT = "removed from the table, kept by the retention"
    TOMBSTONED_PAST = "removed from the table, past the retention"
    ORPHANED_YOUNG = "in no version, younger than the retention: a running writer may need them"
    ORPHANED_OLD = "in no version that the log records, older than the retention"
    VECTORS_LIVE = "deletion vectors of the newest version"
    VECTORS_KEPT = "replaced deletion vectors, kept by the retention"
    VECTORS_DEAD = "deletion vectors that no version within the retention needs"
    CHANGE_DATA = "change data, kept by the retention"
    CHANGE_DATA_PAST = "change data past the retention"
    LOG = "the log"
    ARCHIVED = "archived files, including files that left the archive but are not deleted yet"
    LANDED = "landed files, in a folder from which a declared table loads"
    HIDDEN = "hidden files next to the data"
    FOLDERS = "folder markers"
    NONCURRENT = "noncurrent versions"
    DELETE_MARKERS = "delete markers"
    UNREAD = "files of a table whose log cannot be read"


# The parts that a vacuum may delete.
RECLAIMABLE = frozenset(
    {Part.TOMBSTONED_PAST, Part.ORPHANED_OLD, Part.VECTORS_DEAD, Part.CHANGE_DATA_PAST}
)


def is_folder_marker(key: str, size_bytes: int) -> bool:
    """Whether an object with this key and size only marks a folder.

    The S3 console writes `a/`; EMR and older Hadoop write `a_$folder$` (delta-io/delta#466).
    """
    return not size_bytes and key.endswith(("/", FOLDER_SUFFIX))


def plausible_ms(modified_ms: int | None, *, now_ms: int) -> int | None:
    """`modified_ms`, or `None` if it is not a plausible time in milliseconds.

    A time before S3 existed, or more than a day in the future, is not plausible.
    """
    if modified_ms is None or not _FIRST_MS <= modified_ms <= now_ms + DAY_MS:
        return None
    return modified_ms
