"""Which strategy is chosen where that is left open, and what a table has to get or lose for it."""

from dataclasses import replace
from typing import Any

import pytest

from lakehouse.core.declaration.compaction_policy import (
    MIB,
    BinPacking,
    Compaction,
    LiquidClustering,
    ZOrder,
    policy_for,
)
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    AutoCompaction,
    BySensor,
    Chosen,
    OptimizedWrite,
    Scheduled,
    Strategy,
)
from lakehouse.core.declaration.strategy_properties import (
    AUTO_COMPACT,
    CLUSTERING_MARK,
    OPTIMIZE_WRITE,
    STRATEGY_MARK,
    PropertyChanges,
    clustering_change,
    desired_properties,
    property_changes,
)
from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Reason
from lakehouse.core.scheduling.strategy_selection import (
    WriteFacts,
    choose_strategy,
    measure_writes,
    strategy_of,
)
from lakehouse_tests.core.example_snapshots import snapshot

HOUR_MS = 3_600_000
SMALL = WriteFacts(
    batch_bytes=MIB, batch_files=2, batch_partitions=1, arrivals_per_hour=12, table_bytes=20 * MIB
)
LARGE = replace(SMALL, batch_bytes=1000 * MIB, batch_files=64)


def chosen(latency_seconds: float) -> Compaction:
    """A policy that leaves the strategy open."""
    return policy_for(
        "bronze",
        Compaction(strategy=Chosen(latency_seconds=latency_seconds), target_file_bytes=128 * MIB),
    )


# Wished latency, how the table is written, what is chosen, and why.
CHOICES = {
    "nothing is known": (60, None, BySensor(), Reason.WRITES_UNKNOWN),
    "large batches in many files, and time to shuffle": (60, LARGE, OptimizedWrite(), Reason.BEFORE_WRITE_CHOSEN),
    "large batches, and no time to shuffle": (10, LARGE, BySensor(), Reason.SENSOR_CHOSEN),
    "large batches that fill their files anyway": (60, replace(LARGE, batch_files=8), BySensor(), Reason.SENSOR_CHOSEN),
    "large in sum, small in each partition": (600, replace(LARGE, batch_partitions=32), BySensor(), Reason.SENSOR_CHOSEN),
    "what was chosen before is kept": (60, replace(LARGE, batch_files=8, is_shuffled=True), OptimizedWrite(), Reason.BEFORE_WRITE_CHOSEN),
    "what was chosen before is kept for batches a little too small": (
        60,
        replace(LARGE, batch_bytes=80 * MIB, batch_files=1, is_shuffled=True),
        OptimizedWrite(),
        Reason.BEFORE_WRITE_CHOSEN,
    ),
    "what was chosen before is left for small batches": (60, replace(SMALL, is_shuffled=True), AfterWrite(), Reason.AFTER_WRITE_CHOSEN),
    "small batches, time to merge": (60, SMALL, AfterWrite(), Reason.AFTER_WRITE_CHOSEN),
    "small batches, no wish to hurry": (24 * 3600, SMALL, BySensor(), Reason.SENSOR_CHOSEN),
    "small batches one after the other": (60, replace(SMALL, arrivals_per_hour=1800), BySensor(), Reason.SENSOR_CHOSEN),
    "small batches, and less time than a merge takes": (0.5, SMALL, BySensor(), Reason.SENSOR_CHOSEN),
}  # fmt: skip


@pytest.mark.parametrize(("latency", "facts", "strategy", "reason"), CHOICES.values(), ids=CHOICES)
def test_before_or_after_the_write(
    latency: float, facts: WriteFacts | None, strategy: Strategy, reason: Reason
) -> None:
    found = choose_strategy(chosen(latency), facts)
    assert (found.strategy, found.reason) == (strategy, reason)
    assert any(sign.isdigit() for sign in found.sentence)


@pytest.mark.parametrize(
    ("reads_per_day", "seconds"),
    [(None, 240), (0, 9600), (1e-315, 9600), (24, 6188), (100_000, 96)],
)
def test_declared_readers_bring_the_sensor_earlier_by_what_they_lose(
    reads_per_day: float | None, seconds: float
) -> None:
    often = replace(SMALL, batch_files=8, arrivals_per_hour=60)
    found = choose_strategy(
        replace(chosen(300), min_small_files=32, reads_per_day=reads_per_day), often
    )
    assert found.strategy == (BySensor() if seconds <= 300 else AfterWrite())
    assert f"{seconds} s" in found.sentence


def test_the_sentence_has_the_numbers() -> None:
    found = choose_strategy(chosen(60), SMALL)
    assert found.sentence == (
        "after each write: merging a batch of 2 files (1 MiB, 12.0 an hour) takes 0.7 s of the 60 s that readers accept, "
        "and the sensor would act only after 6000 s"
    )


@pytest.mark.parametrize(
    "strategy",
    [OptimizedWrite(), AfterWrite(), Scheduled(cron="0 3 * * *"), AutoCompaction(), BySensor()],
)
def test_a_declared_strategy_is_in_force_whatever_the_history(strategy: Strategy) -> None:
    found = choose_strategy(policy_for("bronze", Compaction(strategy=strategy)), SMALL)
    assert (found.strategy, found.reason) == (strategy, Reason.STRATEGY_DECLARED)
    assert found.sentence == f"its declaration says {type(strategy).__name__}"


def written(*commits: tuple[int, str, bool]) -> Commits:
    """Commits at these hours, of 1 MiB per file, in these files, with or without new rows."""
    told = []
    for place, (hour, files, data) in enumerate(commits):
        added = {"added_paths": tuple(files.split()), "added_bytes": MIB * len(files.split())}
        told.append(
            Commit(
                version=place,
                committed_ms=hour * HOUR_MS,
                operation="WRITE",
                changed_data=data,
                **added,
            )
        )
    return Commits(table="bronze/t", commits=tuple(told))


def test_writes_are_measured_from_the_commits_with_new_rows_alone() -> None:
    history = written(
        (0, "", False), (0, "d=1/a d=2/a", True), (2, "d=1/b d=2/b", True), (3, "d=1/x", False), (4, "d=1/c d=1/d d=2/c", True),
        (6, "d=1/e d=2/e", True), (8, "d=1/f d=1/g d=1/h d=2/f d=3/f", True),
    )  # fmt: skip
    measured = WriteFacts(
        batch_bytes=2 * MIB,
        batch_files=2,
        batch_partitions=2,
        arrivals_per_hour=0.5,
        table_bytes=15,
    )
    assert measure_writes(snapshot([7, 8], partition_columns=("d",)), history) == measured
    shuffled = snapshot([7, 8], properties={OPTIMIZE_WRITE: "true"})
    assert measure_writes(shuffled, history) == replace(
        measured, batch_partitions=1, is_shuffled=True
    )


@pytest.mark.parametrize(
    ("history", "known"),
    [
        (written(*[(hour, "a", True) for hour in range(4)]), 4),
        (written(*[(1, "a", True)] * 9), 9),
        (written(*[(1, "a", False)] * 9), 0),
    ],
    ids=["too few", "all at once", "no rows"],
)
def test_a_history_that_does_not_tell_leaves_the_choice_to_the_sensor(
    history: Commits, known: int
) -> None:
    found = strategy_of(chosen(60), snapshot([1]), history)
    assert (found.strategy, found.reason) == (BySensor(), Reason.WRITES_UNKNOWN)
    assert strategy_of(chosen(60), None, None).reason is Reason.WRITES_UNKNOWN
    assert found.sentence.startswith(f"by the sensor: only {known} commits")


def test_a_target_that_follows_the_table_is_the_one_that_batches_have_to_fill() -> None:
    policy = replace(chosen(60), target_file_bytes=0)
    history = written(
        *[(hour, " ".join(f"{hour}.{place}" for place in range(16)), True) for hour in range(6)]
    )
    assert strategy_of(policy, snapshot([16 * MIB]), history).strategy == OptimizedWrite()
    assert (
        strategy_of(policy, snapshot([16 * 1024 * MIB] * 9), history).strategy != OptimizedWrite()
    )


OURS = f"{OPTIMIZE_WRITE}=true"
# The strategy, the table's properties, and what is done about them.
PROPERTIES: dict[str, tuple[Strategy, dict[str, str], dict[str, Any]]] = {
    "nothing wanted, nothing there": (BySensor(), {"delta.appendOnly": "true"}, {}),
    "wanted": (OptimizedWrite(), {}, {"set": {OPTIMIZE_WRITE: "true", STRATEGY_MARK: OURS}}),
    "wanted and there": (OptimizedWrite(), {OPTIMIZE_WRITE: "true", STRATEGY_MARK: OURS}, {}),
    "no longer wanted": (BySensor(), {OPTIMIZE_WRITE: "true", STRATEGY_MARK: OURS}, {"unset": (OPTIMIZE_WRITE, STRATEGY_MARK)}),
    "another wanted": (
        AutoCompaction(),
        {OPTIMIZE_WRITE: "true", STRATEGY_MARK: OURS},
        {"set": {AUTO_COMPACT: "true", STRATEGY_MARK: f"{AUTO_COMPACT}=true"}, "unset": (OPTIMIZE_WRITE,)},
    ),
    "a person has set it": (OptimizedWrite(), {OPTIMIZE_WRITE: "true"}, {}),
    "a person's is not taken back": (BySensor(), {OPTIMIZE_WRITE: "true", AUTO_COMPACT: "auto"}, {}),
    "a person has set it otherwise": (OptimizedWrite(), {OPTIMIZE_WRITE: "false"}, {"left": {OPTIMIZE_WRITE: "false"}}),
    "a person has changed ours": (
        OptimizedWrite(),
        {OPTIMIZE_WRITE: "false", STRATEGY_MARK: OURS},
        {"unset": (STRATEGY_MARK,), "left": {OPTIMIZE_WRITE: "false"}},
    ),
    "a person has taken ours away": (OptimizedWrite(), {STRATEGY_MARK: OURS}, {"set": {OPTIMIZE_WRITE: "true"}}),
    "a person has taken ours away, and it is no longer wanted": (BySensor(), {STRATEGY_MARK: OURS}, {"unset": (STRATEGY_MARK,)}),
    "a mark that is not ours to read": (BySensor(), {STRATEGY_MARK: "delta.appendOnly=true x", "delta.appendOnly": "true"},
                                        {"unset": (STRATEGY_MARK,)}),
}  # fmt: skip


@pytest.mark.parametrize(("strategy", "current", "expected"), PROPERTIES.values(), ids=PROPERTIES)
def test_only_what_was_set_here_is_taken_back(
    strategy: Strategy, current: dict[str, str], expected: dict[str, Any]
) -> None:
    found = property_changes(current, desired_properties(strategy))
    assert found == PropertyChanges(**expected)
    after = {
        **{name: value for name, value in current.items() if name not in found.unset},
        **found.set,
    }
    assert property_changes(after, desired_properties(strategy)) == PropertyChanges(left=found.left)


BY_A, BY_B = LiquidClustering(columns=("a",)), LiquidClustering(columns=("b",))
CLUSTERINGS: dict[str, tuple[Any, tuple[str, ...], str | None, tuple[str, ...] | None, str | None]] = {
    "not wanted": (BinPacking(), (), None, None, None),
    "wanted": (BY_A, (), None, ("a",), "a"),
    "wanted and there": (BY_A, ("a",), "a", None, "a"),
    "other columns": (BY_B, ("a",), "a", ("b",), "b"),
    "no longer wanted": (ZOrder(columns=("a",)), ("a",), "a", (), None),
    "a person's is not taken back": (BinPacking(), ("a",), None, None, None),
    "a person's that is wanted stays a person's": (BY_A, ("a",), None, None, None),
    "a person's is not replaced": (BY_B, ("a",), None, None, None),
    "a person's in place of ours is not taken back": (BinPacking(), ("c",), "a", None, None),
    "the mark came, the clustering did not": (BY_A, (), "a", ("a",), "a"),
    "the clustering went, the mark did not": (BinPacking(), (), "a", None, None),
}  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "current", "mark", "columns", "after"), CLUSTERINGS.values(), ids=CLUSTERINGS
)
def test_clustering_comes_and_goes_with_the_policy(
    wanted: Any,
    current: tuple[str, ...],
    mark: str | None,
    columns: tuple[str, ...] | None,
    after: str | None,
) -> None:
    there = replace(
        snapshot([], properties={CLUSTERING_MARK: mark} if mark else {}), clustering_columns=current
    )
    found = clustering_change(there, wanted)
    assert (found.columns, found.mark) == (columns, after)


def test_a_table_with_partitions_cannot_be_clustered() -> None:
    with pytest.raises(
        Refused,
        match=r"bronze/t: LiquidClustering is declared, but the table is partitioned by d\. Use ZOrder",
    ):
        clustering_change(snapshot([], partition_columns=("d",)), BY_A)
