"""Everything that a table's log says at one version."""

from dataclasses import dataclass

from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What the log says at one version. An operation hands them on, so that nobody after it reads the log again."""

    snapshot: Snapshot
    history: Commits
