"""The rule by which readers make a table due, compared with the best schedule in hindsight."""

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import DEFAULT_PRICES
from lakehouse.core.scheduling.read_losses import lost_openings
from lakehouse.core.scheduling.table_state import TableState
from lakehouse.core.scheduling.triggers import find_trigger, is_due
from lakehouse_tests.core.example_snapshots import QUIET

SECONDS_PER_OPENING, HISTORIES = 0.001, 300
KNOWN = Compaction(min_small_files=1_000_000, reads_per_day=0, **QUIET)

# A write of so many files, or a read (0).
type_of_history = Sequence[int]


def random_history(random: Random) -> type_of_history:
    """Writes and reads in bursts of any length, some of them of many files."""
    reads, most = random.choice([0.1, 0.5, 0.9]), random.choice([2, 6, 30])
    return [
        0 if random.random() < reads else random.randint(1, most)
        for _ in range(random.randint(5, 45))
    ]


def by_the_rule(history: type_of_history, fixed: int, per_file: int) -> tuple[float, int, int]:
    """What the rule's schedule costs in openings, how many compactions it has, and the sum of the reads that set them off."""
    steps, reads_ms, files, total, count, last_reads = [(0, 0)], list[int](), 0, 0, 0, 0
    for now_ms, written in enumerate(history, start=1):
        if written:
            files += written
            steps.append((now_ms, files))
        else:
            reads_ms.append(now_ms)
            total += files
        cost = fixed + per_file * files
        state = TableState(
            table="t",
            version=now_ms,
            mergeable_file_count=files,
            openings=tuple(steps),
            lost_openings=lost_openings(tuple(steps), reads_ms, now_ms=now_ms),
            estimate_seconds=cost * SECONDS_PER_OPENING,
            estimate_usd=run_price(DEFAULT_PRICES, seconds=cost * SECONDS_PER_OPENING),
            readers="declared",
        )
        if is_due(find_trigger(state, KNOWN, now_ms=now_ms)):
            total, count, last_reads = total + cost, count + 1, last_reads + files
            files, steps, reads_ms = 0, [(now_ms, 0)], []
    return total, count, last_reads


def in_hindsight(history: type_of_history, fixed: int, per_file: int) -> float:
    """The least total of losses and compactions, in openings, by dynamic programming.

    `least[n]` is the least total of the first n events if the table was compacted right after them.
    """
    least = [0.0]
    for end in range(1, len(history) + 1):
        totals: list[float] = []
        for start in range(end):
            files = 0
            lost = 0
            for written in history[start:end]:
                files += written
                lost += 0 if written else files
            is_last = end == len(history)
            cost = fixed + per_file * files
            totals.append(least[start] + lost + (0 if is_last else cost))
        least.append(min(totals))
    return least[-1]


@pytest.mark.parametrize("per_file", [0, 1], ids=["a constant cost", "a cost by the file"])
def test_the_rule_costs_at_most_twice_the_best_and_the_reads_that_set_its_compactions_off(
    per_file: int,
) -> None:
    random, compactions = Random(14), 0
    for _ in range(HISTORIES):
        history, fixed = random_history(random), random.randint(2, 60)
        ours, count, last_reads = by_the_rule(history, fixed, per_file)
        best = in_hindsight(history, fixed, per_file)
        assert best <= ours <= 2 * best + last_reads, (history, fixed)
        assert per_file == 0 or ours <= 3 * best, (history, fixed)
        compactions += count
    assert compactions > HISTORIES


def test_the_bound_is_reached_by_readers_that_leave_when_the_compaction_is_done() -> None:
    ours, count, last_reads = by_the_rule([1, *[0] * 100], 100, 0)
    assert (ours, count, last_reads, in_hindsight([1, *[0] * 100], 100, 0)) == (200, 1, 1, 100)


def test_the_best_schedule_is_the_best_of_all() -> None:
    random = Random(3)
    for _ in range(40):
        history, fixed = random_history(random)[:9], random.randint(2, 20)

        def cost_of(
            chosen: tuple[int, ...], history: type_of_history = history, fixed: int = fixed
        ) -> int:
            files = total = 0
            for place, written in enumerate(history):
                files, total = files + written, total + (0 if written else files)
                if place in chosen:
                    files, total = 0, total + fixed + files
            return total

        every = [
            chosen
            for count in range(len(history) + 1)
            for chosen in combinations(range(len(history)), count)
        ]
        assert in_hindsight(history, fixed, 1) == min(map(cost_of, every))
