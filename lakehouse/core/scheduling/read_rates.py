"""The rate of full reads of a table, and whether its readers got slower, by the runs that were seen to read it.

A run that writes a table reads the inputs of that table; so the lineage and the runs tell the reads, without a log of queries. A run that
reads only the changes of an input opens the files of these changes, however many others there are: no full read.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.table import Table
from lakehouse.core.scheduling.read_losses import lost_openings, type_of_spread_reads
from lakehouse.core.scheduling.triggers import TableState, slowdown_of
from lakehouse.core.units import DAY_MS, MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRun:
    """A run that succeeded: the tables that it wrote, if any, when it ended, and (where that is known) its seconds."""

    tables: frozenset[str]
    ended_ms: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGap:
    """A time of which it is known how many runs succeeded, and not which."""

    from_ms: int
    until_ms: int
    run_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Full reads of one table per day, and the share by which its readers take longer than they used to (`None`: unknown).

    `read_ms` are the times of all full reads that are known, `unseen` are those that runs nobody looked at must have made, spread evenly.
    `seen`: some table reads it whole, and runs of more than a day are known.
    """

    reads_per_day: float
    slowdown: float | None
    read_ms: tuple[int, ...] = ()
    unseen: tuple[type_of_spread_reads, ...] = ()
    seen: bool = False


def count_reads(
    tables: Sequence[Table],
    runs: Iterable[ReaderRun],
    *,
    since_ms: int,
    now_ms: int,
    gaps: Sequence[RunGap] = (),
) -> Mapping[str, Readers]:
    """The readers of each table, by its key, out of all `runs`; the runs that ended since `since_ms` tell how often it is read.

    Of the runs in the `gaps` the same share is taken to have read a table as of the newest runs, or as of all that are known where that is
    less: a backfill of long ago is no rule. Seconds are compared with earlier runs that wrote the same tables, where there are enough: a
    run of the whole lake is no slow run of one table. A table with several kinds of readers gets the mean of their slowdowns.
    """
    seconds: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    earlier: Counter[frozenset[str]] = Counter()
    reads: defaultdict[str, list[int]] = defaultdict(list)
    ordered = sorted(runs, key=lambda each: each.ended_ms)
    for run in ordered:
        for key in run.tables:
            reads[key].append(run.ended_ms)
        if run.seconds is not None:
            seconds[run.tables].append(run.seconds)
            earlier[run.tables] += run.ended_ms < since_ms
    slowdowns = {
        kind: found
        for kind, took in seconds.items()
        if (found := slowdown_of(took, earlier=earlier[kind])) is not None
    }
    days, newest_count = _days(now_ms - since_ms), sum(run.ended_ms >= since_ms for run in ordered)
    a_day_is_known = any(run.tables and run.ended_ms <= now_ms - DAY_MS for run in ordered)
    readers_of, whole_readers_of = (_readers_of(tables, by) for by in ("inputs", "read_whole"))
    told: dict[str, Readers] = {}
    for table in tables:
        felt = [slower for kind, slower in slowdowns.items() if kind & readers_of[table.key]]
        read_ms = tuple(
            sorted(ms for reader in whole_readers_of[table.key] for ms in reads[reader])
        )
        newest_ms = [ms for ms in read_ms if ms >= since_ms]
        share = min(len(newest_ms) / max(newest_count, 1), len(read_ms) / max(len(ordered), 1))
        told[table.key] = Readers(
            reads_per_day=len(newest_ms) / days,
            slowdown=fmean(felt) if felt else None,
            read_ms=read_ms,
            unseen=tuple(
                (
                    gap.from_ms,
                    gap.until_ms,
                    share * gap.run_count / _days(gap.until_ms - gap.from_ms),
                )
                for gap in gaps
            ),
            seen=bool(whole_readers_of[table.key]) and a_day_is_known,
        )
    return told


def _days(ms: int) -> float:
    return max(ms, MINUTE_MS) / DAY_MS


def with_readers(
    state: TableState, readers: Readers, policy: Compaction, *, now_ms: int
) -> TableState:
    """The state with its readers, seen and declared."""
    declared = policy.reads_per_day
    spread = (*readers.unseen, (0, now_ms, declared or 0.0))
    lost = (
        None
        if state.openings is None
        else lost_openings(state.openings, readers.read_ms, spread=spread, now_ms=now_ms)
    )
    return replace(
        state,
        reads_per_day=readers.reads_per_day + (declared or 0),
        slowdown=readers.slowdown,
        lost_openings=lost,
        readers="declared" if declared is not None else "seen" if readers.seen else "unknown",
    )


def _readers_of(
    tables: Sequence[Table], by: Literal["inputs", "read_whole"]
) -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for table in tables:
        for source in getattr(table, by):
            found[source.key].add(table.key)
    return {table.key: frozenset(found[table.key]) for table in tables}
