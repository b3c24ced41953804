"""Measures how often each table is read in full, and whether its readers got slower.

A run that writes a table reads the table's inputs, so lineage and runs show the reads without a
query log. Callers count the reads of about the last 24 hours. A run that reads only the changes
of an input is not a full read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from lakehouse.base.units import DAY_MS, MINUTE_MS
from lakehouse.declare.table import Table

# The slowdown compares the medians of this many runs, so that one slow run does not decide.
_ROLLING_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRun:
    """A successful run: the tables it wrote, when it ended, and its duration (`None`: unknown)."""

    tables: frozenset[str]
    ended_ms: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Readers:
    """The readers of one table.

    `slowdown` is the share by which the newest runs that read the table took longer than the first
    runs after its last compaction (`None`: unknown).
    """

    reads_per_day: float
    slowdown: float | None = None


def count_reads(
    tables: Sequence[Table],
    runs: Iterable[ReaderRun],
    *,
    since_ms: int,
    now_ms: int,
    compacted_ms: Mapping[str, int] | None = None,
) -> Mapping[str, Readers]:
    """The readers of each table, by the table's key, from the runs that ended since `since_ms`.

    `compacted_ms` has the time of each table's last compaction, as far as it is known. Durations
    are compared between runs that wrote the same tables (one kind of run), since a run of the whole
    lake takes longer than a run of one table. If several kinds of runs read a table, it gets their
    mean slowdown.
    """
    written_ms: defaultdict[str, list[int]] = defaultdict(list)
    by_kind: defaultdict[frozenset[str], list[ReaderRun]] = defaultdict(list)
    for run in sorted(runs, key=lambda each: each.ended_ms):
        if run.ended_ms < since_ms:
            continue
        for key in run.tables:
            written_ms[key].append(run.ended_ms)
        by_kind[run.tables].append(run)
    days = max(now_ms - since_ms, MINUTE_MS) / DAY_MS
    readers_of = _readers_of({table.key: table.inputs for table in tables})
    full_readers_of = _readers_of({table.key: table.read_whole for table in tables})
    readers: dict[str, Readers] = {}
    for table in tables:
        after_ms = (compacted_ms or {}).get(table.key, 0)
        slowdowns = list[float]()
        for kind, kind_runs in by_kind.items():
            if kind & readers_of[table.key]:
                later = [run.seconds for run in kind_runs if run.ended_ms > after_ms]
                slowdown = slowdown_of([each for each in later if each is not None])
                slowdowns += [] if slowdown is None else [slowdown]
        read_count = sum(len(written_ms[reader]) for reader in full_readers_of[table.key])
        readers[table.key] = Readers(
            reads_per_day=read_count / days, slowdown=fmean(slowdowns) if slowdowns else None
        )
    return readers


def _readers_of(inputs_of: Mapping[str, Iterable[Table]]) -> Mapping[str, frozenset[str]]:
    """The keys of the tables that read each table. `inputs_of`: what each table reads."""
    readers: defaultdict[str, set[str]] = defaultdict(set)
    for key, inputs in inputs_of.items():
        for source in inputs:
            readers[source.key].add(key)
    return {key: frozenset(readers[key]) for key in inputs_of}


def slowdown_of(seconds: Sequence[float]) -> float | None:
    """The share by which the newest five runs took longer than the first five (negative: faster).

    `seconds` are durations of runs of one kind since a compaction, oldest first. Medians are
    compared, so that a single run that had to wait decides nothing. `None` if there are fewer than
    ten runs, or if the first ones took no time.
    """
    first = seconds[:_ROLLING_RUNS]
    newest = seconds[_ROLLING_RUNS:][-_ROLLING_RUNS:]
    if len(newest) < _ROLLING_RUNS or not median(first) > 0:
        return None
    return median(newest) / median(first) - 1
