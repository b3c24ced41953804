"""The values on the morning page (`lakehouse report`). `None` means unknown, not 0."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

# The line chart of a table's file counts has at most this many points; more could not be seen.
_POINTS = 48
# The page marks a health score that has fallen by at least this many points. Between two
# compactions, a score usually falls by less.
_FALL = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTable:
    """One table on the page.

    - `problem`: why its log cannot be read. If set, most other values are unknown.
    - `exists`: false if the declared table has not been written yet.
    - `score`: the health score, from 0 to 100. `score_before`: the score on the newest page of an
      earlier day.
    - `file_counts`: points (ms, live files) over the newest 500 commits at most, oldest first.
    - `last_vacuum_ms`: when the newest vacuum ended.
    - `overdue_bytes`: removed bytes that a vacuum should have deleted by now.
    - `is_due`, `reason`, `decision`: whether the table would be compacted now, and why: the name of
      the reason, and a sentence.
    - `quarantined_rows`: `None` also for tables without a quarantine.
    """

    table: str
    problem: str = ""
    exists: bool = True
    owner: str = ""
    score: float | None = None
    score_before: float | None = None
    health: str = ""
    file_count: int | None = None
    small_file_count: int | None = None
    size_bytes: int | None = None
    row_count: int | None = None
    file_counts: tuple[tuple[int, int], ...] = ()
    last_write_ms: int | None = None
    last_compaction_ms: int | None = None
    last_vacuum_ms: int | None = None
    overdue_bytes: int | None = None
    is_due: bool = False
    reason: str = ""
    decision: str = ""
    quarantined_rows: int | None = None

    @property
    def has_fallen(self) -> bool:
        """Whether the score has fallen by at least `_FALL` points since the earlier page."""
        if self.score is None or self.score_before is None:
            return False
        return self.score <= self.score_before - _FALL


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredShare:
    """The objects of the inventory with one use (`part`) and in one storage class.

    `part` is the text of a `Part`, or of a place outside all tables. `kind` is its group in
    `core.inventory.objects.PART_GROUPS`, or `other`.
    """

    part: str
    kind: str
    storage_class: str
    file_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBytes:
    """Where the bytes of the lake are, by the newest inventory.

    `report` is the inventory's name. If there is no inventory, `problem` says why.
    """

    report: str = ""
    created_ms: int | None = None
    shares: tuple[StoredShare, ...] = ()
    problem: str = ""

    @property
    def size_bytes(self) -> int:
        """All bytes in the inventory."""
        return sum(each.size_bytes for each in self.shares)

    @property
    def by_kind(self) -> dict[str, int]:
        """The bytes of each kind, the largest first."""
        return _sums((each.kind, each.size_bytes) for each in self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsSize:
    """The size of Dagster's own records, now and on an earlier page, made at `before_ms`."""

    size_bytes: int
    run_count: int | None = None
    before_bytes: int | None = None
    before_ms: int | None = None

    @property
    def grown_bytes(self) -> int | None:
        """The growth since the earlier page; `None` if no earlier page has the size."""
        return None if self.before_bytes is None else self.size_bytes - self.before_bytes


def points_of(times_ms: Sequence[int], counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The file counts after each commit, thinned to at most `_POINTS` points, with the newest."""
    points = list(zip(times_ms, counts, strict=True))
    step = max(1, ceil(len(points) / _POINTS))
    newest_first = points[::-1]
    return tuple(reversed(newest_first[::step]))


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The total of each name's numbers, the largest first."""
    totals = dict[str, int]()
    for name, number in pairs:
        totals[name] = totals.get(name, 0) + number
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
