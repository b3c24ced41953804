"""A table's history: the files that each commit added and removed."""

from dataclasses import dataclass

from lakehouse.core.delta.snapshot import DataFile, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCommit:
    """One commit; `shape` is the table as it left it, without its files.

    A path that is added and removed is one file, changed.
    """

    version: int
    committed_ms: int
    operation: str
    changed_data: bool
    added: tuple[DataFile, ...] = ()
    removed_paths: tuple[str, ...] = ()
    shape: Snapshot

    @property
    def is_compaction(self) -> bool:
        """Whether it replaced files and changed no row: OPTIMIZE, REORG, or another rewrite."""
        return not self.changed_data and bool(self.removed_paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHistory:
    """The commits after `start`, oldest first, without gaps.

    `start` is `None` if the log still has its first commit.
    """

    table: str
    start: Snapshot | None
    commits: tuple[FileCommit, ...]

    @property
    def first_version(self) -> int:
        """The oldest version that is told."""
        if self.start is not None:
            return self.start.version
        return self.commits[0].version if self.commits else 0
