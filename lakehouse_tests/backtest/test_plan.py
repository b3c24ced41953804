"""A log replayed under another policy."""

from dataclasses import replace

import pytest

from lakehouse.backtest.plan import Replay, bytes_ingested, real_replay, replay
from lakehouse.base.errors import Refused
from lakehouse.declare.policies import (
    AfterWrite,
    BinPacking,
    Compaction,
    LiquidClustering,
    Scheduled,
    policy_for,
)
from lakehouse_tests.delta.log.test_read_log import clustered, told
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_snapshots import POLICY

AFTER_WRITE = replace(POLICY, strategy=AfterWrite())


def replayed(log: LogBuilder, policy: Compaction = POLICY) -> Replay:
    return replay(told(log), policy)


def appended(count: int, *, size: int = 1_000) -> LogBuilder:
    log = LogBuilder().create()
    for place in range(count):
        log.append([(f"f{place}", size + place)])
    return log


def test_the_sensors_threshold_decides_and_the_rest_stays() -> None:
    found = replayed(appended(5))
    assert found.file_counts == (1, 2, 3, 1, 2)
    assert (found.compaction_count, found.bytes_rewritten) == (1, 4_006)
    assert found.mean_file_count == 9 / 5
    assert bytes_ingested(told(appended(5))) == 5_010


@pytest.mark.parametrize(
    ("policy", "counts", "compactions"),
    [
        (replace(POLICY, min_small_files=2), (1, 1, 2, 1, 2), 2),
        (replace(POLICY, mode="off"), (1, 2, 3, 4, 5), 0),
        (replace(POLICY, mode="recommend"), (1, 2, 3, 4, 5), 0),
        (AFTER_WRITE, (1, 1, 2, 1, 2), 2),
        (replace(POLICY, strategy=Scheduled(cron="0 3 * * *")), (1, 2, 3, 4, 5), 0),
        (replace(POLICY, min_small_files=2, cooldown_minutes=60), (1, 1, 2, 3, 4), 1),
    ],
)
def test_other_policies(policy: Compaction, counts: tuple[int, ...], compactions: int) -> None:
    found = replayed(appended(5), policy)
    assert (found.file_counts, found.compaction_count) == (counts, compactions)


def test_a_cooldown_that_ends_between_two_commits_is_followed_by_a_compaction() -> None:
    policy = replace(POLICY, min_small_files=2, cooldown_minutes=1.5)
    found = replayed(appended(6), policy)
    assert found.compaction_count == 3


def test_the_real_replay_counts_its_own_compactions_and_the_replay_leaves_them_out() -> None:
    log = appended(4).optimize([f"f{each}" for each in range(4)], into=("c", 4_000))
    log.append([("f4", 1_000)])
    really = real_replay(told(log))
    assert really.file_counts == (1, 2, 3, 1, 2) and really.bytes_rewritten == 4_006
    assert replayed(log, replace(POLICY, mode="off")).file_counts == (1, 2, 3, 4, 5)
    log.delete(["c"])
    # The output of the real compaction stands for all files that it merged.
    assert replayed(log, replace(POLICY, mode="off")).file_counts[-1] == 1
    assert replayed(log, AFTER_WRITE).file_counts[-1] == 1


def test_a_merged_file_loses_the_bytes_of_a_file_that_a_writer_removes() -> None:
    log = appended(4)
    for place in range(3):
        log.delete([f"f{place}"])
    assert replayed(log).file_counts == (1, 2, 3, 1, 1, 1, 1)
    log.delete(["f3"])
    assert replayed(log).file_counts[-1] == 0


def test_a_clustered_table_is_replayed_as_plan_plans_it() -> None:
    log = LogBuilder().create(features=["clustering", "domainMetadata"])
    log.commit("CLUSTER BY", clustered("id"))
    for number in range(6):
        log.append([(f"f{number}", 100)])
    policy = policy_for(
        "bronze",
        Compaction(
            min_small_files=3, cooldown_minutes=0, data_layout=LiquidClustering(columns=("id",))
        ),
    )
    assert replay(told(log), policy).file_counts == (1, 2, 1, 2, 1, 2)
    message = r"which BinPacking cannot plan.*data_layout=LiquidClustering"
    with pytest.raises(Refused, match=message):
        replay(told(log), replace(policy, data_layout=BinPacking()))
