"""A policy in words."""

import pytest

from lakehouse.core.declaration.compaction_policy import (
    BinPacking,
    Compaction,
    LiquidClustering,
    ZOrder,
)
from lakehouse.core.declaration.policy_text import parse_policy
from lakehouse.core.declaration.strategies import (
    AfterWrite,
    BySensor,
    Scheduled,
)
from lakehouse.core.declaration.windows_and_cron import Window
from lakehouse.core.errors import Refused

NIGHT = Window(start="22:00", end="04:00")
WORDS = {
    "min_small_files=8": Compaction(min_small_files=8),
    "target_file_bytes=128MiB": Compaction(target_file_bytes=128 * 1024**2),
    "target_file_bytes=1.5 MB": Compaction(target_file_bytes=1_500_000),
    "max_bytes_per_run=10_000": Compaction(max_bytes_per_run=10_000),
    "max_small_file_age_hours=1.5": Compaction(max_small_file_age_hours=1.5),
    "cooldown_minutes=0": Compaction(cooldown_minutes=0),
    "strategy = by_sensor": Compaction(strategy=BySensor()),
    "strategy=after_write": Compaction(strategy=AfterWrite()),
    "strategy=scheduled:0 3 * * *": Compaction(strategy=Scheduled(cron="0 3 * * *")),
    "mode=off": Compaction(mode="off"),
    "engine=spark": Compaction(engine="spark"),
    "windows=22:00-04:00": Compaction(windows=(NIGHT,)),
    "windows=sat, sun 00:00-23:59; 22:00-04:00": Compaction(
        windows=(Window(start="00:00", end="23:59", days=("sat", "sun")), NIGHT)
    ),
    "data_layout=bin_packing": Compaction(data_layout=BinPacking()),
    "data_layout=z_order:a,b": Compaction(data_layout=ZOrder(columns=("a", "b"))),
    "data_layout=liquid_clustering:a": Compaction(data_layout=LiquidClustering(columns=("a",))),
}


@pytest.mark.parametrize(("word", "expected"), WORDS.items(), ids=WORDS)
def test_a_word_sets_its_knob(word: str, expected: Compaction) -> None:
    assert parse_policy([word], Compaction()) == expected


def test_what_is_not_named_stays_as_declared_and_the_last_word_counts() -> None:
    found = parse_policy(["min_small_files=8", "min_small_files=9"], Compaction(mode="recommend"))
    assert found == Compaction(min_small_files=9, mode="recommend")


REFUSED = {
    "min_smal_files=8": "Did you mean min_small_files",
    "zzz=8": "Use one of strategy, min_small_files",
    "min_small_files": "has no value",
    "min_small_files=8MiB": "Use a number",
    "min_small_files=1": "2 or more",
    "min_small_files=2.5": "whole number",
    "target_file_bytes=8 miles": "like 128MiB",
    "target_file_bytes=-1": "like 128MiB",
    "strategy=sometimes": "Use after_write, scheduled or by_sensor",
    "strategy=none": "Use mode=off",
    "strategy=scheduled:daily": "five fields",
    "windows=10-12": "HH:MM",
    "mode=maybe": 'Use "automatic"',
}


@pytest.mark.parametrize(("word", "said"), REFUSED.items(), ids=REFUSED)
def test_a_word_that_cannot_be_meant_is_refused_with_what_can(word: str, said: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_policy([word], Compaction())
    assert said in str(caught.value)
