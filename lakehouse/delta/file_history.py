"""A table's history: the files that each commit added and removed."""

from dataclasses import dataclass

from lakehouse.delta.commits import Commit
from lakehouse.delta.snapshot import DataFile, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCommit(Commit):
    """A commit with its files. `shape` is the snapshot after the commit, without files.

    A path of both `added` and `removed_paths` is one file that changed, for example because it got
    a deletion vector.
    """

    added: tuple[DataFile, ...] = ()
    shape: Snapshot

    @property
    def is_compaction(self) -> bool:
        """Whether the commit replaced files but changed no row: OPTIMIZE, REORG or similar."""
        return not self.changed_data and bool(self.removed_paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHistory:
    """The commits after the snapshot `start`, oldest first, without gaps.

    `start` is `None` if the log still has its first commit. `commits` then begins with it.
    """

    table: str
    start: Snapshot | None
    commits: tuple[FileCommit, ...]

    @property
    def first_version(self) -> int:
        """The version of `start`, or else of the first commit; 0 if there is neither."""
        if self.start is not None:
            return self.start.version
        return self.commits[0].version if self.commits else 0
