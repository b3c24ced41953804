"""Which files of a `_delta_log` folder make the newest version: one checkpoint and the commits after it."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.engine.store import StoredFile

_COMMIT = re.compile(r"(?P<version>\d{20})\.json")
# Source: PROTOCOL.md, "Checkpoints": classic, multi-part, and UUID-named (V2).
_CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?\.(?:parquet|json)"
)
_DIGITS_OF_A_PART = 10


class LogChanged(Exception):
    """The listing does not hang together, which a commit or a cleanup during the listing also causes: list again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The files to read. `tail`: the commits after the checkpoint; `older`: contiguous ones before the tail, newest kept."""

    table: str
    version: int
    checkpoint_version: int | None
    checkpoint: tuple[StoredFile, ...]
    tail: tuple[StoredFile, ...]
    older: tuple[StoredFile, ...]

    @property
    def newest(self) -> StoredFile:
        """The file that makes the version: its commit, or its checkpoint where that commit is gone."""
        commits = (*self.older, *self.tail)
        return commits[-1] if commits else self.checkpoint[0]


def version_of(file: StoredFile) -> int:
    """The version that a commit file makes."""
    return int(file.name.rpartition("/")[2][:20])


def until(listing: Iterable[StoredFile], version: int | None, *, folder: str) -> Iterable[StoredFile]:
    """A listing as it was when `version` was the newest (`None`: now): later commits and checkpoints left out."""
    if version is None:
        return listing
    return [file for file in listing if not (number := file.name.removeprefix(folder)[:20]).isdigit() or int(number) <= version]


def find_segment(listing: Iterable[StoredFile], table: str, *, folder: str, newest_commits: int) -> Segment | None:
    """The segment of the newest version in a listing of `folder`; `None` where it holds no commit and no checkpoint.

    Raises:
        LogChanged: a version after the checkpoint is missing, or all of them, or the first ones without a checkpoint.
    """
    commits: dict[int, StoredFile] = {}
    parts: dict[tuple[int, str], dict[str, StoredFile]] = defaultdict(dict)
    pointed = False
    for file in listing:
        name = file.name.removeprefix(folder)
        pointed |= name == "_last_checkpoint"
        if _COMMIT.fullmatch(name):
            commits[int(name[:20])] = file
        elif match := _CHECKPOINT.fullmatch(name):
            parts[int(match["version"]), match["parts"] or match["uuid"] or ""][match["part"] or ""] = file
    found = _newest_complete(parts)
    if found is None and not commits:
        if pointed:
            raise LogChanged(f"log of {table}: it names a last checkpoint, but holds neither checkpoint nor commits")
        return None
    checkpoint_version, checkpoint = found or (-1, ())
    version = max(checkpoint_version, *commits) if commits else checkpoint_version
    tail = _after(commits, checkpoint_version, version, table=table)
    older = _before(commits, checkpoint_version, most=newest_commits - len(tail))
    return Segment(
        table=table,
        version=version,
        checkpoint_version=checkpoint_version if found else None,
        checkpoint=tuple(checkpoint),
        tail=tail,
        older=older,
    )


def commits_before(listing: Iterable[StoredFile], version: int, *, folder: str) -> tuple[StoredFile, ...]:
    """The commits before `version` in a listing of `folder`, oldest first, back to the first gap."""
    named = ((file.name.removeprefix(folder), file) for file in listing)
    commits = {int(name[:20]): file for name, file in named if _COMMIT.fullmatch(name)}
    return _before(commits, version - 1, most=len(commits))


def _newest_complete(parts: Mapping[tuple[int, str], Mapping[str, StoredFile]]) -> tuple[int, Sequence[StoredFile]] | None:
    """The newest checkpoint of which every part is there; parts of an unfinished one do not count."""
    complete = [key for key, files in parts.items() if _is_whole(key[1], files)]
    if not complete:
        return None
    newest = max(complete)
    return newest[0], [file for _, file in sorted(parts[newest].items())]


def _is_whole(kind: str, files: Mapping[str, StoredFile]) -> bool:
    in_parts = kind.isdigit() and len(kind) == _DIGITS_OF_A_PART
    return not in_parts or ([int(part) for part in sorted(files)] == [*range(1, len(files) + 1)] and len(files) == int(kind))


def _after(commits: Mapping[int, StoredFile], checkpoint_version: int, version: int, *, table: str) -> tuple[StoredFile, ...]:
    wanted = range(checkpoint_version + 1, version + 1)
    there = [number for number in sorted(commits) if number in wanted]
    if missing := version - checkpoint_version - len(there):  # a name may claim any version, so the numbers are not gone through
        first = next(number for place, number in enumerate(wanted) if place == len(there) or there[place] != number)
        after = f"after its checkpoint of version {checkpoint_version}" if checkpoint_version >= 0 else "and has no whole checkpoint"
        raise LogChanged(f"log of {table}: it reaches version {version} {after}, but {missing} commit(s) are missing, first {first}")
    return tuple(commits[number] for number in there)


def _before(commits: Mapping[int, StoredFile], checkpoint_version: int, *, most: int) -> tuple[StoredFile, ...]:
    """Commits up to the checkpoint's version, oldest first, without a gap."""
    kept: list[StoredFile] = []
    number = checkpoint_version
    while number in commits and len(kept) < most:
        kept.append(commits[number])
        number -= 1
    return tuple(reversed(kept))
