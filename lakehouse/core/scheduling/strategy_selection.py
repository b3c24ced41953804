"""The strategy in force for a table: the declared strategy or, for `Chosen`, one that fits it.

Optimized write costs a shuffle of each batch, but nothing is written twice. Merging after each
write delays the next batch. The sensor merges many batches at once, so it rewrites the fewest
bytes, but small files stay until it runs. A batch is large if it has three quarters of the target
file size per partition. `Chosen` becomes the first case that applies:

1. the sensor, if too few writes are known
2. the sensor, if the table has no optimized write, and batches are large and have few files
3. optimized write, if batches are large, and a shuffle takes at most `Chosen.latency_seconds`
4. after each write, if the sensor would exceed this latency, and a merge is short enough for the
   latency and for the time between two writes
5. otherwise, the sensor
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import ceil, sqrt
from statistics import median

from lakehouse.core.compaction.target_size import target_in_force, write_history_of
from lakehouse.core.costs.compaction_estimate import estimate
from lakehouse.core.costs.compaction_speed import (
    DEFAULT_RATES,
    SECONDS_PER_OPENING,
    MergeWork,
    Rates,
    fit_rates,
)
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    BySensor,
    Chosen,
    OptimizedWrite,
    Strategy,
)
from lakehouse.core.declaration.strategy_properties import OPTIMIZE_WRITE
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.reasons import Explained, Reason
from lakehouse.core.units import DAY_MS, HOUR_MS

# Writes are measured over at most this many of the newest commits with new rows, because they show
# how the table is written now.
_MOST_COMMITS = 50
# With fewer commits, one odd batch would decide, so the writes count as unknown.
_FEWEST_COMMITS = 5
# A merge after a write may take this share of the time between two batches. The rest is for the
# writer.
_MERGE_SHARE = 0.25
# A change of strategy changes table properties, in a commit that aborts other writers. So the
# table keeps optimized write until its facts miss the limits by this factor.
_HYSTERESIS = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFacts:
    """The recent writes of a table. A batch is a commit with new rows.

    `batch_bytes`, `batch_files` and `batch_partitions` are medians over the newest batches. Sizes
    are file sizes in storage. `is_shuffled`: the table has optimized write, so `batch_files` does
    not show how many files a batch would have otherwise.
    """

    batch_bytes: int
    batch_files: int
    batch_partitions: int
    arrivals_per_hour: float
    table_bytes: int
    is_shuffled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyChoice(Explained):
    """The strategy in force, never `Chosen`, and why."""

    strategy: Strategy


def strategy_of(
    policy: Compaction, snapshot: Snapshot | None, history: Commits | None
) -> StrategyChoice:
    """The strategy in force for a table with this log.

    `snapshot` and `history` are `None` if the table does not exist yet.
    """
    if snapshot is None or history is None or not isinstance(policy.strategy, Chosen):
        return choose_strategy(policy, None)
    target_bytes = target_in_force(snapshot.size_bytes, policy, write_history_of(history))
    return choose_strategy(
        replace(policy, target_file_bytes=target_bytes),
        measure_writes(snapshot, history),
        known=len(_commits_with_rows(history)),
        rates=fit_rates(history, snapshot),
    )


def measure_writes(snapshot: Snapshot, history: Commits) -> WriteFacts | None:
    """The recent writes of a table.

    `None` if too few commits have new rows, or if no time passed from the first to the last.
    """
    commits = _commits_with_rows(history)[-_MOST_COMMITS:]
    if len(commits) < _FEWEST_COMMITS:
        return None
    span_ms = commits[-1].committed_ms - commits[0].committed_ms
    if span_ms <= 0:
        return None
    partitions = 1
    if snapshot.partition_columns:
        partitions = ceil(median(_folder_count(commit.added_paths) for commit in commits))
    return WriteFacts(
        batch_bytes=int(median(commit.added_bytes for commit in commits)),
        batch_files=ceil(median(len(commit.added_paths) for commit in commits)),
        batch_partitions=partitions,
        arrivals_per_hour=(len(commits) - 1) * HOUR_MS / span_ms,
        table_bytes=snapshot.size_bytes,
        is_shuffled=snapshot.properties.get(OPTIMIZE_WRITE) == "true",
    )


def choose_strategy(
    policy: Compaction, facts: WriteFacts | None, *, known: int = 0, rates: Rates = DEFAULT_RATES
) -> StrategyChoice:
    """The declared strategy or, for `Chosen`, the strategy that fits `facts` (see the module).

    `policy` has the target file size in force. `known` counts the known commits with new rows.
    """
    if not isinstance(policy.strategy, Chosen):
        return _choice(
            policy.strategy, Reason.STRATEGY_DECLARED, name=type(policy.strategy).__name__
        )
    if facts is None:
        return _choice(BySensor(), Reason.WRITES_UNKNOWN, known=known, wanted=_FEWEST_COMMITS)
    target_bytes = policy.target_file_bytes
    latency_seconds = policy.strategy.latency_seconds
    files_needed = max(facts.batch_partitions, ceil(facts.batch_bytes / target_bytes))
    # An upper bound: this rate includes decoding and encoding, and a shuffle only copies.
    shuffle_seconds = facts.batch_bytes * rates.seconds_per_byte
    slack = _HYSTERESIS if facts.is_shuffled else 1.0
    is_large = facts.batch_bytes / facts.batch_partitions * slack >= target_bytes * 3 / 4
    merge_seconds = _merge_seconds(facts, target_bytes, rates)
    interval_seconds = 3600 / facts.arrivals_per_hour
    sensor_seconds = _sensor_seconds(policy, facts, merge_seconds)
    numbers = {
        **asdict(facts),
        "files_needed": files_needed,
        "target_bytes": target_bytes,
        "arrivals_per_hour": f"{facts.arrivals_per_hour:.1f}",
        "latency_seconds": f"{latency_seconds:g}",
        "interval_seconds": f"{interval_seconds:.0f}",
        "sensor_seconds": f"{sensor_seconds:.0f}",
        "seconds": f"{merge_seconds:.1f}",
    }
    if is_large and facts.batch_files <= files_needed and not facts.is_shuffled:
        return _choice(BySensor(), Reason.SENSOR_CHOSEN, **numbers)
    if is_large and shuffle_seconds <= latency_seconds * slack:
        numbers["seconds"] = f"{shuffle_seconds:.1f}"
        return _choice(OptimizedWrite(), Reason.BEFORE_WRITE_CHOSEN, **numbers)
    merge_limit_seconds = min(latency_seconds, interval_seconds * _MERGE_SHARE)
    if sensor_seconds > latency_seconds and merge_seconds <= merge_limit_seconds:
        return _choice(AfterWrite(), Reason.AFTER_WRITE_CHOSEN, **numbers)
    return _choice(BySensor(), Reason.SENSOR_CHOSEN, **numbers)


def _commits_with_rows(history: Commits) -> list[Commit]:
    return [commit for commit in history.commits if commit.changed_data and commit.added_paths]


def _folder_count(paths: Iterable[str]) -> int:
    return len({path.rpartition("/")[0] for path in paths})


def _merge_seconds(facts: WriteFacts, target_bytes: int, rates: Rates) -> float:
    """The estimated duration of a merge after one batch.

    The merge is assumed to rewrite the batch's files and, in each of its partitions, an earlier
    file of half the target size.
    """
    earlier_bytes = min(facts.table_bytes, facts.batch_partitions * target_bytes // 2)
    work = MergeWork(
        files_removed=facts.batch_files + facts.batch_partitions,
        bytes_removed=facts.batch_bytes + earlier_bytes,
        files_added=facts.batch_partitions,
    )
    return estimate(rates, work).seconds


def _sensor_seconds(policy: Compaction, facts: WriteFacts, merge_seconds: float) -> float:
    """The seconds from a compaction until the sensor compacts again.

    It does so at the file count or, if reads are declared, when the readers' losses reach the cost.
    The losses grow with the square of the time since the last compaction.
    """
    interval_seconds = 3600 / facts.arrivals_per_hour
    by_count_seconds = interval_seconds * policy.due_file_count / facts.batch_files
    reads_per_second = (policy.reads_per_day or 0) * 1_000 / DAY_MS
    files_per_second = facts.batch_files / interval_seconds
    lost_per_second = SECONDS_PER_OPENING * files_per_second * reads_per_second
    if not lost_per_second:
        return by_count_seconds
    return min(by_count_seconds, sqrt(2 * merge_seconds / lost_per_second))


def _choice(strategy: Strategy, reason: Reason, **numbers: object) -> StrategyChoice:
    return StrategyChoice(strategy=strategy, explanation=reason.explain(**numbers))
