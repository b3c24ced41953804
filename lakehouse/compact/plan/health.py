"""The health of a table: its counts, and a score of four parts.

Each part follows one rule: `value = limit / (limit + count)`, where the count is of files, commits
or bytes. The value is 1 if the count is zero, one half at the limit, and falls smoothly towards 0
beyond the limit. The exception is the average size: files that would suffice, over files.

Sources: Apache Amoro's health score has the parts small files (by their average size), equality
deletes and position deletes. AutoComp scores the reduction of the file count. The limit of the log
follows Delta's checkpoint interval. The weights are our choice: the part that costs readers most
has the largest weight.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import CheckResult, Reason
from lakehouse.base.stored_objects import total_bytes
from lakehouse.base.text import count_of, size_text
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.delta.protocol import checkpoint_interval
from lakehouse.delta.snapshot import LogTail, Snapshot, by_partition

# The most commits after the last checkpoint, in checkpoint intervals. Ten missing checkpoints mean
# that checkpoints fail, not that one is late.
_LATE_CHECKPOINTS = 10
# The small-files check fails at this multiple of the file count that makes a compaction due.
_LATE_COMPACTIONS = 2
# The fields of `Health` that Dagster plots over time.
HEALTH_NUMBERS = (
    "file_count",
    "small_file_count",
    "mergeable_file_count",
    "size_bytes",
    "average_file_bytes",
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


@frozen
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
            "committed_ms": self.committed_ms,
            "row_count": self.row_count,
            **{name: getattr(self, name) for name in HEALTH_NUMBERS},
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
    candidate_bytes = plan.policy.candidate_bytes
    log_commit_limit = _LATE_CHECKPOINTS * checkpoint_interval(snapshot.properties)
    small_file_count = sum(file.size_bytes < candidate_bytes for file in snapshot.files)
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
    needed = sum(max(1, ceil(total_bytes(files) / target)) for files in partitions)
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
