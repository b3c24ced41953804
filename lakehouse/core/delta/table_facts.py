"""Everything that a table's log says at one version."""

from dataclasses import dataclass

from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """The file of a log that makes a version, as storage listed it: its name relative to the lake, its size, when it was last modified."""

    version: int
    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """The state of a table by its log at one version. An operation hands it on, so that nobody after it reads the log again.

    `newest` is the commit that makes this version, or its checkpoint where the log was cleaned up to that.
    """

    snapshot: Snapshot
    history: Commits
    newest: LogFile
