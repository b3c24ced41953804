"""Selects the log files that define a table version: a checkpoint and the commits after it."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import takewhile

from lakehouse.base.frozen import frozen
from lakehouse.store import StoredFile

COMMIT_NAME = re.compile(r"\d{20}\.json")
_CHECKSUM = re.compile(r"\d{20}\.crc")
# Source: PROTOCOL.md, "Checkpoints": classic, multi-part, and UUID-named (V2).
CHECKPOINT_NAME = re.compile(
    r"(?P<version>\d{20})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<uuid>[0-9a-fA-F-]{36}))?\.(?:parquet|json)"
)


class LogChanged(Exception):
    """The listing is inconsistent, perhaps due to a concurrent commit or cleanup. List again."""


class LogContradiction(Exception):
    """A checkpoint cannot be read, or two statements of a log that must agree differ.

    These are a number (in `_last_checkpoint` or a checksum) and what it counts, or the files that a
    checkpoint lists and the files that the commits before it leave.

    `suspect` names a file that a person may remove if the rest of the log is complete; it may be
    empty.
    """

    def __init__(self, message: str, *, suspect: str = "") -> None:
        super().__init__(message)
        self.suspect = suspect


@frozen
class Segment:
    """The files to read for one version.

    `tail` holds the commits after the checkpoint, or all commits without one. `older` holds
    contiguous commits directly before the tail. Both have the oldest commit first. `pointer` is
    `_last_checkpoint`, and `None` if a version was requested, because it describes the newest.
    `checksum` is the checksum file of `version` or, if that is missing, of `checkpoint_version`.
    """

    table: str
    version: int
    checkpoint_version: int | None
    checkpoint: tuple[StoredFile, ...]
    tail: tuple[StoredFile, ...]
    older: tuple[StoredFile, ...]
    pointer: StoredFile | None = None
    checksum: StoredFile | None = None

    @property
    def commits(self) -> tuple[StoredFile, ...]:
        """All commits to read, oldest first, without a gap."""
        return (*self.older, *self.tail)

    @property
    def newest(self) -> StoredFile:
        """The file that defines the version: the commit or, without one, the checkpoint."""
        return (*self.checkpoint[:1], *self.commits)[-1]


def log_folder(table: str) -> str:
    """The prefix of the names of a table's log files."""
    return f"{table}/_delta_log/"


class _LogListing:
    """The files of a log by kind, without files of versions after `upto`."""

    def __init__(self, listing: Iterable[StoredFile], table: str, *, upto: int | None) -> None:
        self.commits: dict[int, StoredFile] = {}
        self.checksums: dict[int, StoredFile] = {}
        # (version, UUID, number of parts) -> part -> file
        self.parts: dict[tuple[int, str, int], dict[int, StoredFile]] = defaultdict(dict)
        self.pointer: StoredFile | None = None
        folder = log_folder(table)
        for file in listing:
            name = file.name.removeprefix(folder)
            if name == "_last_checkpoint":
                self.pointer = file
            elif upto is not None and name[:20].isdigit() and int(name[:20]) > upto:
                continue
            elif COMMIT_NAME.fullmatch(name):
                self.commits[int(name[:20])] = file
            elif _CHECKSUM.fullmatch(name):
                self.checksums[int(name[:20])] = file
            elif match := CHECKPOINT_NAME.fullmatch(name):
                checkpoint = int(match["version"]), match["uuid"] or "", int(match["parts"] or 1)
                self.parts[checkpoint][int(match["part"] or 1)] = file


def find_segment(
    listing: Iterable[StoredFile],
    table: str,
    *,
    newest_commits: int = 0,
    version: int | None = None,
) -> Segment | None:
    """The segment of the newest version in a listing, or `None` if there is no log.

    The segment's `tail` and `older` together hold `newest_commits` commits or more. If a gap or the
    log's first version comes earlier, they hold fewer. With `version`, newer versions are ignored.

    Raises:
        LogChanged: a commit after the checkpoint (without a checkpoint: from version 0 on) is
            missing, or there are signs of a checkpoint, but neither a complete one nor commits.
    """
    files = _LogListing(listing, table, upto=version)
    commits = files.commits
    checksums = files.checksums
    complete = [key for key, parts in files.parts.items() if len(parts) == max(parts) == key[2]]
    if not complete and not commits:
        if files.pointer is not None or files.parts:
            raise LogChanged(
                f"log of {table}: it has traces of a checkpoint, but neither a complete checkpoint "
                "nor commits"
            )
        return None
    # The newest complete checkpoint. If its version has two, both have the same content.
    checkpoint = max(complete, default=(-1, "", 0))
    checkpoint_version = checkpoint[0]
    newest = max([*commits, *(key[0] for key in files.parts)])
    tail = _after(commits, checkpoint_version, newest, table=table)
    # Back from the checkpoint's version until, together with the tail, there are enough commits.
    candidates = range(checkpoint_version, newest - newest_commits, -1)
    older = takewhile(commits.__contains__, candidates)
    return Segment(
        table=table,
        version=newest,
        checkpoint_version=checkpoint_version if complete else None,
        checkpoint=tuple(file for _, file in sorted(files.parts[checkpoint].items())),
        tail=tail,
        older=tuple(reversed([commits[number] for number in older])),
        pointer=files.pointer if version is None else None,
        checksum=checksums.get(newest) or checksums.get(checkpoint_version),
    )


def _after(
    commits: Mapping[int, StoredFile], checkpoint_version: int, version: int, *, table: str
) -> tuple[StoredFile, ...]:
    """The commits after the checkpoint, up to `version`. Raises `LogChanged` if one is missing."""
    expected = range(checkpoint_version + 1, version + 1)
    # A file name may claim a huge version, so the iteration stops at the first gap.
    present = [*takewhile(commits.__contains__, expected)]
    first_missing = expected.start + len(present)
    if first_missing <= version:
        checkpoint = "and has no complete checkpoint"
        if checkpoint_version >= 0:
            checkpoint = f"after its checkpoint of version {checkpoint_version}"
        raise LogChanged(
            f"log of {table}: it reaches version {version} {checkpoint}, but lacks the commit of "
            f"version {first_missing}"
        )
    return tuple(commits[number] for number in present)
