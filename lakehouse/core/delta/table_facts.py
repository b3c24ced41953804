"""Everything that a table's log says at one version."""

from dataclasses import dataclass

from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """A file of a log as storage listed it: its name relative to the lake, its size, when it was last modified."""

    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """What the log says at one version. An operation hands them on, so that nobody after it reads the log again.

    `newest` is the file that makes this version: its commit, or its checkpoint where the log was cleaned up to that.
    """

    snapshot: Snapshot
    history: Commits
    newest: LogFile
