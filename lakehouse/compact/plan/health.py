"""The health of a table: its counts, a score of four parts, and how often it is read.

A run that writes a table reads the table's inputs, so lineage and runs show the reads without a
query log. Callers count the reads of about the last 24 hours. A run that reads only the changes
of an input is not a full read.

Each part follows one rule: `value = limit / (limit + count)`, where the count is of files, commits
or bytes. The value is 1 if the count is zero, one half at the limit, and falls smoothly towards 0
beyond the limit. The exception is the average size: files that would suffice, over files.

Sources: Apache Amoro's health score has the parts small files (by their average size), equality
deletes and position deletes. AutoComp scores the reduction of the file count. The limit of the log
follows Delta's checkpoint interval. The weights are our choice: the part that costs readers most
has the largest weight.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from statistics import fmean, median
from typing import Any

from lakehouse.base.reasons import CheckResult, Reason
from lakehouse.base.text import DAY_MS, MINUTE_MS, count_of, size_text
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.declare.table import Table
from lakehouse.delta.protocol import checkpoint_interval
from lakehouse.delta.snapshot import LogTail, Snapshot, by_partition, file_sizes

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


# The most commits after the last checkpoint, in checkpoint intervals. Ten missing checkpoints mean
# that checkpoints fail, not that one is late.
_LATE_CHECKPOINTS = 10
# The small-files check fails at this multiple of the file count that makes a compaction due.
_LATE_COMPACTIONS = 2
_NUMBERS = (
    "committed_ms",
    "file_count",
    "small_file_count",
    "mergeable_file_count",
    "size_bytes",
    "average_file_bytes",
    "row_count",
    "tombstone_count",
    "tombstone_bytes",
)


@dataclass(frozen=True, slots=True)
class HealthPart:
    """One part of the score: its value from 0 (bad) to 1 (good), its weight, and an explanation."""

    name: str
    weight: int
    value: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The health of a table at one version.

    `small_file_count` counts files below the plan's candidate size. `mergeable_file_count` counts
    files that compactions would merge. Tombstones count while the log lists them, even if their
    files were vacuumed.
    """

    committed_ms: int
    file_count: int
    small_file_count: int
    size_bytes: int
    row_count: int | None
    tombstone_count: int
    tombstone_bytes: int
    log: LogTail
    log_commit_limit: int
    parts: tuple[HealthPart, ...]
    plan: CompactionPlan

    @property
    def mergeable_file_count(self) -> int:
        """The number of files that compactions would merge, from the plan."""
        return self.plan.mergeable_file_count

    @property
    def average_file_bytes(self) -> int:
        """Mean size of a live file, rounded down; 0 without live files."""
        return self.size_bytes // self.file_count if self.file_count else 0

    @property
    def score(self) -> float:
        """The weighted mean of the parts, from 0 (bad) to 100, to one decimal."""
        return round(
            100
            * sum(part.weight * part.value for part in self.parts)
            / sum(part.weight for part in self.parts),
            1,
        )

    @property
    def sentence(self) -> str:
        """The score, and the part that lowers it most."""
        worst = max(self.parts, key=lambda part: part.weight * (1 - part.value))
        if worst.value == 1:
            return (
                f"health {self.score:g} of 100: {count_of(self.file_count, 'file')} "
                f"({size_text(self.size_bytes)}), nothing to improve"
            )
        return f"health {self.score:g} of 100, lowered most by {worst.name}: {worst.sentence}"

    def as_json(self) -> dict[str, Any]:
        """Health in its documented JSON shape."""
        return {
            "table": self.plan.table,
            "version": self.plan.version,
            **{name: getattr(self, name) for name in _NUMBERS},
            "log_commit_count": self.log.commit_count,
            "log_bytes": self.log.commit_bytes,
            "score": self.score,
            "sentence": self.sentence,
            "parts": {
                part.name: {
                    "weight": part.weight,
                    "value": round(part.value, 4),
                    "sentence": part.sentence,
                }
                for part in self.parts
            },
        }


def assess_health(snapshot: Snapshot, plan: CompactionPlan) -> Health:
    """The health of `snapshot`, with the plan that was made for it."""
    sizes = file_sizes(snapshot.files)
    candidate_bytes = plan.policy.candidate_bytes
    log_commit_limit = _log_commit_limit(snapshot)
    small_file_count = sum(size < candidate_bytes for size in sizes)
    return Health(
        committed_ms=snapshot.committed_ms,
        file_count=snapshot.file_count,
        small_file_count=small_file_count,
        size_bytes=snapshot.size_bytes,
        row_count=snapshot.row_count,
        tombstone_count=len(snapshot.tombstones),
        tombstone_bytes=snapshot.tombstone_bytes,
        log=snapshot.log,
        log_commit_limit=log_commit_limit,
        parts=_parts(snapshot, plan, small_file_count, log_commit_limit),
        plan=plan,
    )


def assess_small_files(health: Health) -> CheckResult:
    """Whether compaction keeps up; the sentence starts with the plan's own.

    A table regularly reaches the number of mergeable files that makes a compaction due. So the
    check fails only at twice this number. It also fails if the plan is refused.
    """
    count = health.mergeable_file_count
    due = health.plan.policy.min_small_files
    limit = _LATE_COMPACTIONS * due
    is_refused = health.plan.reason is Reason.PLAN_REFUSED
    sentence = (
        f"{health.plan.sentence}; {count_of(count, 'mergeable file')}, a compaction is due at "
        f"{due}, the check fails at {limit}"
    )
    return CheckResult(
        name="small_files",
        ok=count < limit and not is_refused,
        sentence=health.plan.sentence if is_refused else sentence,
        numbers={"mergeable_files": count},
    )


def assess_log_debt(health: Health) -> CheckResult:
    """Whether readers have few commits to read after the newest checkpoint."""
    count = health.log.commit_count
    limit = health.log_commit_limit
    sentence = (
        f"{count_of(count, 'commit')} ({size_text(health.log.commit_bytes)}) since "
        f"{_start_of_tail(health.log)}, at most {limit} allowed"
    )
    numbers = {"commits": count}
    return CheckResult(name="log_debt", ok=count <= limit, sentence=sentence, numbers=numbers)


def _parts(
    snapshot: Snapshot, plan: CompactionPlan, small_file_count: int, log_limit: int
) -> tuple[HealthPart, ...]:
    count = snapshot.file_count
    log = snapshot.log
    merge_limit = plan.policy.min_small_files
    target = plan.policy.target_file_bytes
    removed_bytes = snapshot.tombstone_bytes
    removed_limit = max(1, snapshot.size_bytes)
    partitions = by_partition(snapshot.files).values()
    needed = sum(max(1, ceil(sum(file_sizes(files)) / target)) for files in partitions)
    mergeable_count = plan.mergeable_file_count
    what = "would be merged"
    if plan.reason is Reason.PLAN_REFUSED:
        mergeable_count = small_file_count
        what = "small, and cannot be merged"
    small_files_sentence = (
        f"{count_of(mergeable_count, 'file')} {what}; at {merge_limit}, this part of the score is "
        "half"
    )
    average_size_sentence = (
        f"{count_of(count, 'file')} in {count_of(len(partitions), 'partition')}, "
        f"{needed} of up to {size_text(target)} would suffice"
    )
    log_sentence = (
        f"{count_of(log.commit_count, 'commit')} ({size_text(log.commit_bytes)}) since "
        f"{_start_of_tail(log)}; at {log_limit}, this part of the score is half"
    )
    tombstones_sentence = (
        f"{count_of(len(snapshot.tombstones), 'removed file')} ({size_text(removed_bytes)}); "
        f"at {size_text(removed_limit)}, this part of the score is half"
    )
    small_files_value = merge_limit / (merge_limit + mergeable_count)
    average_size_value = min(1.0, needed / count) if count else 1.0
    log_value = log_limit / (log_limit + log.commit_count)
    tombstones_value = removed_limit / (removed_limit + removed_bytes)
    return (
        HealthPart("small files", 40, small_files_value, small_files_sentence),
        HealthPart("average size", 30, average_size_value, average_size_sentence),
        HealthPart("log debt", 15, log_value, log_sentence),
        HealthPart("tombstones", 15, tombstones_value, tombstones_sentence),
    )


def _start_of_tail(log: LogTail) -> str:
    """The point after which readers read the log's commits."""
    if log.checkpoint_version is None:
        return "the table's beginning"
    return f"the checkpoint of version {log.checkpoint_version}"


def _log_commit_limit(snapshot: Snapshot) -> int:
    return _LATE_CHECKPOINTS * checkpoint_interval(snapshot.properties)
