"""Plans the move of a table to another key, for a declaration with `formerly`.

A move copies a table's files and everything that the lake records under its key, and then deletes
the old objects, unless the user keeps them (`--keep-old`). The table keeps its table id, versions,
landed batches, quarantine, and records of upkeep (compactions, vacuums, archive).
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.costs.predicted_and_actual import Figure
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.move_facts import MovedFiles, MoveFacts, refusal_of, why_kept
from lakehouse.core.inventory.objects import PAGE_KEYS
from lakehouse.core.text import count_of, size_text

# The number of copies that run at the same time.
COPIES_AT_ONCE = 16
# These are assumptions, not measurements. On S3, a request takes 0.1 to 0.2 s (AWS, "Best practices
# design patterns: optimizing Amazon S3 performance"), and copies a large object at 50 MB/s or more.
# On a disk, a file takes two flushes, and is copied at 100 MB/s.
_S3_SECONDS_PER_COPY = 0.2
_S3_BYTES_PER_SECOND = 50_000_000
_DISK_SECONDS_PER_COPY = 0.005
_DISK_BYTES_PER_SECOND = 100_000_000
# The time for two commits, one in the table and one in its quarantine, and for the locks.
_SECONDS_TO_COMMIT = 5.0
# A commit without rows adds at most these files: the commit, its checksum and, unless the table has
# partitions, an empty data file. On a disk, each of the three has a `.crc` file, too. The move
# makes one commit for the landed batches, and one for the quarantine.
_S3_FILES_PER_COMMIT = 3
_DISK_FILES_PER_COMMIT = 6
_KINDS_WITH_COMMIT = ("landed batches", "quarantine")
# The number of listings: both folders are listed before the copies, after them, and before the
# deletion.
_LISTINGS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """The move of a table from `old_key` to `new_key`, or why it is refused.

    - `added_count`: the greatest number of objects that the commits of the move itself will add.
    - `only_kept`: why the old folder has to be kept if the table is moved; empty if it need not be.
    - `is_begun`: an earlier run began this move, and this run finishes it.
    """

    old_key: str
    new_key: str
    moved: tuple[MovedFiles, ...]
    added_count: int
    readers: tuple[str, ...]
    on_s3: bool
    requests: int
    seconds: float
    usd: float
    refusal: str = ""
    only_kept: str = ""
    is_begun: bool = False

    @property
    def count(self) -> int:
        """The number of objects to move."""
        return sum(each.count for each in self.moved)

    @property
    def size_bytes(self) -> int:
        """The size of the objects to move."""
        return sum(each.size_bytes for each in self.moved)

    @property
    def sentence(self) -> str:
        """What is moved, to which key and at which cost, or why the move is refused."""
        if self.refusal:
            return self.refusal
        kinds = ", ".join(f"{each.kind} {each.count}" for each in self.moved)
        begun = "; an earlier run began this move" if self.is_begun else ""
        times = "; on S3, older versions are read by number, not by timestamp" if self.on_s3 else ""
        kept = f"; {self.only_kept}" if self.only_kept else ""
        return (
            f"{self.old_key} moves to {self.new_key}: {count_of(self.count, 'object')}"
            f" ({size_text(self.size_bytes)}: {kinds}), about {self.seconds:.0f} s and"
            f" {self.usd:.4f} USD. Versions, landed batches and quarantine stay{times}. Other"
            f" programs that read the old folder must use the new one{begun}{kept}"
        )

    def checked(self, *, keep_old: bool) -> "MovePlan":
        """The same plan, if it can be run.

        Raises:
            Refused: the move is refused, or the old folder has to be kept without `keep_old`.
        """
        if self.refusal:
            raise Refused(self.refusal)
        if self.only_kept and not keep_old:
            raise Refused(f"move of {self.old_key}: {self.only_kept}")
        return self

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        return {
            "from": self.old_key,
            "to": self.new_key,
            "objects": self.count,
            "bytes": self.size_bytes,
            "kinds": {
                each.kind: {"objects": each.count, "bytes": each.size_bytes} for each in self.moved
            },
            "requests": self.requests,
            "seconds": round(self.seconds, 3),
            "usd": round(self.usd, 9),
            "is_begun": self.is_begun,
            "refusal": self.refusal or None,
            "only_kept": self.only_kept or None,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOutcome:
    """A finished move with measured figures.

    This run copied `count` objects and deleted `deleted` old objects.
    """

    plan: MovePlan
    count: int
    size_bytes: int
    deleted: int
    requests: int
    seconds: float
    usd: float
    kept_old: bool = False

    @property
    def sentence(self) -> str:
        """What this run copied and deleted."""
        old = f"{count_of(self.deleted, 'old object')} deleted"
        if self.kept_old:
            old = f"the folder of {self.plan.old_key} was kept, but no run writes it any more"
        return (
            f"{self.plan.old_key} is now {self.plan.new_key}: {count_of(self.count, 'object')}"
            f" copied ({size_text(self.size_bytes)}) in {self.seconds:.1f} s; {old}"
        )

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The predicted and the measured figures.

        A run that finishes a move of an earlier run may copy less than predicted.
        """
        plan = self.plan
        return (
            Figure("objects", plan.count + plan.added_count, self.count),
            Figure("bytes", plan.size_bytes, self.size_bytes),
            Figure("requests", plan.requests, self.requests),
            Figure("seconds", plan.seconds, self.seconds),
            Figure("usd", plan.usd, self.usd),
        )


def plan_of_move(facts: MoveFacts, prices: Prices = DEFAULT_PRICES) -> MovePlan | None:
    """The move of a table; `None` if there is nothing to move."""
    has_begun = facts.record is not None
    if not has_begun and facts.old_table is None and not facts.problem:
        return None
    if facts.record is not None and facts.record.is_finished:
        return None
    count = sum(each.count for each in facts.moved)
    size_bytes = sum(each.size_bytes for each in facts.moved)
    commits = [each for each in facts.moved if each.count and each.kind in _KINDS_WITH_COMMIT]
    files_per_commit = _S3_FILES_PER_COMMIT if facts.on_s3 else _DISK_FILES_PER_COMMIT
    added_count = 0 if has_begun else files_per_commit * len(commits)
    copies = count + added_count
    requests = 0
    if facts.on_s3:
        # One request copies an object. Listings and the deletion need one for each page of keys.
        requests = copies + (_LISTINGS + 1) * ceil(copies / PAGE_KEYS)
    seconds = _seconds(facts, count, size_bytes)
    return MovePlan(
        old_key=facts.old_key,
        new_key=facts.new_key,
        moved=tuple(each for each in facts.moved if each.count),
        added_count=added_count,
        readers=facts.readers,
        on_s3=facts.on_s3,
        requests=requests,
        seconds=seconds,
        usd=run_price(prices, seconds=seconds, put_requests=requests),
        refusal=refusal_of(facts),
        only_kept=why_kept(facts),
        is_begun=has_begun,
    )


def _seconds(facts: MoveFacts, count: int, size_bytes: int) -> float:
    if not facts.on_s3:
        copying = count * _DISK_SECONDS_PER_COPY + size_bytes / _DISK_BYTES_PER_SECOND
    else:
        one_by_one = count * _S3_SECONDS_PER_COPY + size_bytes / _S3_BYTES_PER_SECOND
        copying = one_by_one / COPIES_AT_ONCE
    return _SECONDS_TO_COMMIT + copying
