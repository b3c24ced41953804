"""What happened to a table before, folded from its commits."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit, as its `commitInfo` and actions tell it. `changed_data`: it added or removed rows, not only files.

    `applications` are those whose transaction ids it carries.
    """

    version: int
    committed_ms: int
    operation: str
    changed_data: bool
    added_paths: tuple[str, ...] = ()
    removed_paths: tuple[str, ...] = ()
    added_bytes: int = 0
    removed_bytes: int = 0
    user_metadata: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    metrics: Mapping[str, str] = field(default_factory=dict[str, str])
    applications: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The commits that the log still holds, oldest first, without gaps."""

    table: str
    commits: tuple[Commit, ...]

    def between(self, version: int, upto: int) -> tuple[Commit, ...] | None:
        """The commits after `version` up to and with `upto`; `None` (unknown) if they are not all here, or `upto` is before `version`."""
        commits = tuple(commit for commit in self.commits if version < commit.version <= upto)
        return commits if len(commits) == upto - version else None

    def data_changed_after(self, version: int) -> bool | None:
        """Whether rows changed after `version`; `None` (unknown) if the commits after it are not all here."""
        later = self.between(version, self.commits[-1].version) if self.commits else None
        return None if later is None else any(commit.changed_data for commit in later)
