"""Bytes that are rewritten again and again for nothing, found in a table's commits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakehouse.core.delta.commits import Commit, Commits, written_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrites:
    """How often in a row the same bytes were rewritten for nothing, and the last commit that did so."""

    times: int = 0
    bytes_rewritten: int = 0
    version: int = 0
    last_ms: int = 0


def find_rewrites(history: Commits) -> Rewrites:
    """The longest row of rewrites of the same bytes for nothing that has not ended; zero where there is none.

    The bytes are followed through the commits without data change, folder by folder (a partition is one). Such a commit is for nothing
    where it rewrites files of an earlier one, together with fewer than two files of writers, and does not halve their number: a plan of
    ours asks for two fresh files, and a second tier halves. REORG has another purpose, and neither counts nor ends a row; a merge with
    a purpose ends it, as does a rewrite or a delete of the rows. A merge of ours with a purpose ends all rows of the table.
    """
    written: dict[str, Rewrites] = {}
    for commit in history.commits:
        ended = False
        for added, removed in _by_folder(commit):
            before = [found for path in removed if (found := written.pop(path, None)) is not None]
            after = None if commit.changed_data else _after(commit, before, added=len(added), fresh=len(removed) - len(before))
            ended |= after == Rewrites()
            for path in added:
                if after is not None:
                    written[path] = after
                elif commit.changed_data:
                    written.pop(path, None)  # the same file with a deletion vector: its rows changed
        if ended and is_ours(commit):
            written = dict.fromkeys(written, Rewrites())
    return max(written.values(), key=_worse, default=Rewrites())


def is_ours(commit: Commit) -> bool:
    """Whether a compaction of this program made the commit: it says so in its metadata."""
    return not commit.changed_data and "compaction" in written_in(commit)


def _by_folder(commit: Commit) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The paths that a commit added and removed, by folder."""
    folders: dict[str, tuple[list[str], list[str]]] = {}
    for place, paths in enumerate((commit.added_paths, commit.removed_paths)):
        for path in paths:
            folders.setdefault(path.rpartition("/")[0], ([], []))[place].append(path)
    yield from folders.values()


def _after(commit: Commit, before: Sequence[Rewrites], *, added: int, fresh: int) -> Rewrites | None:
    """The row of rewrites that the added files continue; `None` where the commit moved nothing (statistics add the same files anew)."""
    if not before and not fresh:
        return None
    worst = max(before, key=_worse, default=Rewrites())
    if commit.operation == "REORG":
        return worst
    if not before or fresh >= 2 or len(before) >= 2 * added:
        return Rewrites()
    return Rewrites(
        times=worst.times + 1,
        bytes_rewritten=worst.bytes_rewritten + commit.removed_bytes,
        version=commit.version,
        last_ms=commit.committed_ms,
    )


def _worse(rewrites: Rewrites) -> tuple[int, int]:
    return rewrites.times, rewrites.last_ms
