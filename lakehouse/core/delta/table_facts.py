"""Everything that a table's log says at one version."""

from dataclasses import dataclass

from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """The file of a log that makes a version, as storage listed it: `name` is relative to the lake."""

    version: int
    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The state of a table by its log; `newest` is the commit that makes this version, or its checkpoint where the log begins there."""

    snapshot: Snapshot
    history: Commits
    newest: LogFile
