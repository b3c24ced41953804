"""Measures how often each table is read in full, and whether its readers got slower.

A run that writes a table reads the table's inputs, so lineage and runs show the reads without a
query log. Callers count the reads of about the last 24 hours. A run that reads only the changes
of an input is not a full read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.table import Table
from lakehouse.core.scheduling.read_losses import lost_openings
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.units import DAY_MS, MINUTE_MS

# The slowdown is measured over this many newest runs, so that one slow run does not dominate it.
_ROLLING_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRun:
    """A successful run: the tables it wrote, when it ended, and its duration (`None`: unknown)."""

    tables: frozenset[str]
    ended_ms: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """The full reads of one table.

    - `slowdown`: the share by which the newest runs that read the table took longer than the runs
      before (`None`: unknown).
    - `read_ms`: the times of the full reads since `since_ms`, which are the ends of the runs.
    - `seen`: some table reads this table in full, and a full day of runs is known.
    """

    reads_per_day: float
    slowdown: float | None = None
    since_ms: int = 0
    read_ms: tuple[int, ...] = ()
    seen: bool = False


def count_reads(
    tables: Sequence[Table],
    runs: Iterable[ReaderRun],
    *,
    since_ms: int,
    now_ms: int,
    day_is_known: bool,
) -> Mapping[str, Readers]:
    """The readers of each table, by the table's key, from the runs that ended since `since_ms`.

    Durations are compared between runs that wrote the same tables (one kind of run), since a run of
    the whole lake takes longer than a run of one table. If several kinds of runs read a table, it
    gets their mean slowdown.
    """
    seconds: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    written_ms: defaultdict[str, list[int]] = defaultdict(list)
    for run in sorted(runs, key=lambda each: each.ended_ms):
        if run.ended_ms < since_ms:
            continue
        for key in run.tables:
            written_ms[key].append(run.ended_ms)
        if run.seconds is not None:
            seconds[run.tables].append(run.seconds)
    slowdowns: dict[frozenset[str], float] = {}
    for kind, durations in seconds.items():
        slowdown = slowdown_of(durations)
        if slowdown is not None:
            slowdowns[kind] = slowdown
    days = max(now_ms - since_ms, MINUTE_MS) / DAY_MS
    readers_of = _readers_of({table.key: table.inputs for table in tables})
    full_readers_of = _readers_of({table.key: table.read_whole for table in tables})
    readers: dict[str, Readers] = {}
    for table in tables:
        shares = [share for kind, share in slowdowns.items() if kind & readers_of[table.key]]
        full_readers = full_readers_of[table.key]
        read_ms = sorted(ms for reader in full_readers for ms in written_ms[reader])
        readers[table.key] = Readers(
            reads_per_day=len(read_ms) / days,
            slowdown=fmean(shares) if shares else None,
            since_ms=since_ms,
            read_ms=tuple(read_ms),
            seen=bool(full_readers) and day_is_known,
        )
    return readers


def with_readers(
    state: TableState, readers: Readers, policy: Compaction, *, now_ms: int
) -> TableState:
    """The state with its observed and declared readers.

    Before `readers.since_ms`, reads are assumed to have been as frequent as since then.
    """
    declared = policy.reads_per_day
    lost = None
    if state.openings is not None:
        earlier_reads = (0, readers.since_ms, readers.reads_per_day)
        declared_reads = (0, now_ms, declared or 0.0)
        lost = lost_openings(
            state.openings, readers.read_ms, spread=(earlier_reads, declared_reads), now_ms=now_ms
        )
    kind: Literal["declared", "seen", "unknown"] = "unknown"
    if declared is not None:
        kind = "declared"
    elif readers.seen:
        kind = "seen"
    return replace(
        state,
        reads_per_day=readers.reads_per_day + (declared or 0),
        slowdown=readers.slowdown,
        lost_openings=lost,
        readers=kind,
    )


def _readers_of(inputs_of: Mapping[str, Iterable[Table]]) -> Mapping[str, frozenset[str]]:
    """The keys of the tables that read each table. `inputs_of`: what each table reads."""
    readers: defaultdict[str, set[str]] = defaultdict(set)
    for key, inputs in inputs_of.items():
        for source in inputs:
            readers[source.key].add(key)
    return {key: frozenset(readers[key]) for key in inputs_of}


def slowdown_of(seconds: Sequence[float]) -> float | None:
    """The share by which the newest five runs took longer than earlier runs (negative: faster).

    `seconds` are durations of runs of one kind, oldest first. The base is the median of the earlier
    runs, so that a single run that had to wait does not distort the base. `None` if there are fewer
    than five earlier runs, or if their median is 0.
    """
    newest = seconds[-_ROLLING_RUNS:]
    earlier = seconds[:-_ROLLING_RUNS]
    if len(earlier) < _ROLLING_RUNS or not median(earlier) > 0:
        return None
    return fmean(newest) / median(earlier) - 1
