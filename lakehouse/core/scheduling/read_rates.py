"""How often a table is read, and whether its readers got slower: told by those that were seen to read it.

A run that writes a table reads the inputs of that table; so the lineage and the runs tell the reads, without a log of queries.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from lakehouse.core.declaration.table import Table
from lakehouse.core.scheduling.triggers import slowdown_of
from lakehouse.core.units import DAY_MS, MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRun:
    """A run that succeeded: the tables it wrote, when it ended, and (where that is known) what it took."""

    tables: frozenset[str]
    ended_ms: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """Reads of one table per day, and the share by which its readers take longer than they used to (`None`: unknown)."""

    reads_per_day: float
    slowdown: float | None


def count_reads(tables: Sequence[Table], runs: Iterable[ReaderRun], *, since_ms: int, now_ms: int) -> Mapping[str, Readers]:
    """The readers of each table, by its key, out of all `runs`; those that ended since `since_ms` tell how often it is read.

    What they took is held against what those took that ended before, where enough of them are told, and against runs of the same kind
    only, those that wrote the same tables: a run of the whole lake is no slow run of one table. A table with several kinds of readers
    gets the mean of their slowdowns.
    """
    seconds: defaultdict[frozenset[str], list[float]] = defaultdict(list)
    earlier: Counter[frozenset[str]] = Counter()
    counts: Counter[str] = Counter()
    for run in sorted(runs, key=lambda each: each.ended_ms):
        if run.ended_ms >= since_ms:
            counts.update(run.tables)
        if run.seconds is not None:
            seconds[run.tables].append(run.seconds)
            earlier[run.tables] += run.ended_ms < since_ms
    slowdowns = {kind: found for kind, took in seconds.items() if (found := slowdown_of(took, earlier=earlier[kind])) is not None}
    readers_of = _readers_of(tables)
    days = max(now_ms - since_ms, MINUTE_MS) / DAY_MS
    return {
        table.key: Readers(
            reads_per_day=sum(counts[reader] for reader in readers_of[table.key]) / days,
            slowdown=fmean(felt) if (felt := [found for kind, found in slowdowns.items() if kind & readers_of[table.key]]) else None,
        )
        for table in tables
    }


def _readers_of(tables: Sequence[Table]) -> Mapping[str, frozenset[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for table in tables:
        for source in table.inputs:
            found[source.key].add(table.key)
    return {table.key: frozenset(found[table.key]) for table in tables}
