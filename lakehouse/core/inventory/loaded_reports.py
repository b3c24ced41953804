"""What the inventory table's own commits say of the reports that were loaded into it."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from lakehouse.core.delta.commits import Commits


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A report that is in the inventory table: its name, when its listing began, and what it listed."""

    report: str
    created_ms: int
    object_count: int
    size_bytes: int


def load_json(load: Load) -> str:
    """What goes into the commit that loads a report."""
    return json.dumps({"inventory": asdict(load)}, separators=(",", ":"))


def loads_of(history: Commits) -> Iterator[Load]:
    """The loads that the log still tells of, newest first; commits of somebody else are passed over."""
    for commit in reversed(history.commits):
        try:
            told = json.loads(commit.user_metadata or "{}")["inventory"]
            yield Load(
                report=str(told["report"]),
                created_ms=int(told["created_ms"]),
                object_count=int(told["object_count"]),
                size_bytes=int(told["size_bytes"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
