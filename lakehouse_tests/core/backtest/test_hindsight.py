"""The best schedule in hindsight, and how far from it the rule by which readers make a table due can be."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from lakehouse.core.backtest.hindsight import ReadHistory, best_schedule, read_history
from lakehouse.core.costs.estimate import DEFAULT_RATES, price
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.commits import Commit
from lakehouse.core.scheduling.read_losses import LogEvent, lost_openings
from lakehouse.core.scheduling.triggers import TableState, find_trigger, is_due
from lakehouse.core.units import DAY_MS, HOUR_MS
from lakehouse_tests.core.example_snapshots import QUIET, data_file, snapshot

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
            estimate_usd=price(DEFAULT_PRICES, seconds=cost * SECONDS_PER_OPENING),
            readers="declared",
        )
        if is_due(find_trigger(state, KNOWN, now_ms=now_ms)):
            total, count, last_reads = total + cost, count + 1, last_reads + files
            files, steps, reads_ms = 0, [(now_ms, 0)], []
    return total, count, last_reads


def in_hindsight(history: type_of_history, fixed: int, per_file: int) -> float:
    def phases(place: int, _before: int) -> Iterator[tuple[float, float]]:
        files = lost = 0
        for written in history[place + 1 :]:
            files, lost = files + written, lost + (0 if written else files)
            yield lost, fixed + per_file * files
        yield lost, 0

    return best_schedule(len(history), phases)[0]


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


def writes(count: int, hours: float = 1, files: int = 2) -> tuple[LogEvent, ...]:
    return tuple(
        LogEvent(
            at_ms=round(number * hours * HOUR_MS),
            added=tuple((f"{number}/{each}", "", 1_000) for each in range(files)),
        )
        for number in range(count)
    )


def history_of(events: tuple[LogEvent, ...], reads_per_day: float, **more: object) -> ReadHistory:
    policy = Compaction(
        target_file_bytes=1_000_000, min_small_files=4, reads_per_day=reads_per_day, **QUIET
    )
    return ReadHistory(start=(), events=events, policy=policy, rates=DEFAULT_RATES, **more)  # type: ignore[arg-type]


def test_a_schedule_is_billed_by_what_its_readers_lost_and_what_its_compactions_took() -> None:
    history = history_of(writes(5), reads_per_day=24)
    never = history.bill([])
    # A read an hour: after the first write one opening too many, then 3, 5, 7.
    assert (never.compaction_count, never.upkeep_usd) == (0, 0)
    assert never.readers_seconds == pytest.approx(0.001 * (1 + 3 + 5 + 7))
    once = history.bill([2 * HOUR_MS])
    # The six files are one file then: beside it two and then four are too many.
    assert once.readers_seconds == pytest.approx(0.001 * (1 + 3 + 0 + 2))
    assert once.upkeep_seconds == pytest.approx((0.4 + 0.08 + 6 * 0.001 + 6_000 / 100e6) * 1.3)
    assert history.best() == never
    assert never.as_json()["seconds"] == 0.016


@pytest.mark.parametrize("reads_per_day", [0, 24, 1_440, 720_000])
def test_no_schedule_is_below_the_best(reads_per_day: float) -> None:
    history = history_of(writes(12), reads_per_day=reads_per_day)
    best = history.best()
    bills = [history.bill([]), history.bill([event.at_ms for event in history.events])]
    bills += [
        history.bill([first.at_ms, later.at_ms]) for first, later in combinations(history.events, 2)
    ]
    assert best.usd <= min(bill.usd for bill in bills) + 1e-15
    assert best.compaction_count == {0: 0, 24: 0, 1_440: 3, 720_000: 11}[reads_per_day]


@pytest.mark.parametrize("folders", [1, 3])
def test_a_compaction_that_merges_nothing_is_no_gift(folders: int) -> None:
    """The plan leaves one new file alone, and a large one for good: what a compaction leaves depends on those before it."""
    random = Random(11)
    for number in range(8):
        sizes = (1_000,) if number < 4 else (1_000, 250_000, 400_000, 600_000)
        files = [
            (f"{name}", f"{random.randrange(folders)}", random.choice(sizes)) for name in range(12)
        ]
        events = [
            LogEvent(
                at_ms=place * HOUR_MS, added=tuple(files.pop() for _ in range(random.randint(1, 2)))
            )
            for place in range(6)
        ]
        history, times = (
            history_of(tuple(events), reads_per_day=random.choice([1_000, 5_000, 100_000])),
            [event.at_ms for event in events],
        )
        least = min(
            history.bill(chosen).usd
            for count in range(len(times) + 1)
            for chosen in combinations(times, count)
        )
        assert (
            least - 1e-12
            <= history.best().usd
            <= least * (1 + 1e-9 if folders == 1 and number < 4 else 1.3)
        )
    each = history_of(writes(100, files=1), reads_per_day=4_800)
    assert each.bill([event.at_ms for event in each.events]).upkeep_seconds > 25
    assert each.best().upkeep_seconds > 25


def test_a_file_from_before_the_log_is_there_once_however_many_vectors_it_got() -> None:
    files = [data_file(1_000, name) for name in ("old", "older", "old", "old")]
    vectors = [
        Commit(
            version=n,
            committed_ms=n,
            operation="DELETE",
            changed_data=True,
            added_paths=("old",),
            removed_paths=("old",),
        )
        for n in (1, 2)
    ]
    history = read_history(vectors, files, snapshot([]), policy=Compaction(), rates=DEFAULT_RATES)
    assert [path for path, *_ in history.start] == ["old", "older"]


def test_readers_go_on_reading_after_the_last_commit() -> None:
    last = writes(1, files=9)
    assert history_of(last, reads_per_day=24).bill([]).readers_seconds == 0
    assert history_of(last, reads_per_day=24, until_ms=2 * DAY_MS).bill(
        []
    ).readers_seconds == pytest.approx(48 * 0.008)


def test_readers_pay_the_measured_price_of_an_opening() -> None:
    bills = [
        history_of(writes(5), reads_per_day=24, opening_seconds=seconds).bill([])
        for seconds in (0.001, 0.04)
    ]
    assert bills[1].readers_usd == pytest.approx(40 * bills[0].readers_usd)
    assert bills[1].readers_seconds == pytest.approx(40 * bills[0].readers_seconds)


def test_where_time_costs_no_money_the_best_takes_the_least_of_it() -> None:
    history = replace(
        history_of(writes(50, files=10), 12_000),
        rates=replace(DEFAULT_RATES, prices=Prices(usd_per_vcpu_hour=0)),
    )
    best, really = history.best(), history.bill([event.at_ms for event in history.events][::2])
    assert (best.usd, best.compaction_count > 5, best.seconds <= really.seconds) == (0, True, True)
    assert really.times(best) == pytest.approx(really.seconds / best.seconds)


def test_reads_are_counted_at_their_times_and_after_the_last_commit() -> None:
    times = (0, HOUR_MS - 1, HOUR_MS, 9 * DAY_MS)
    assert history_of(writes(2), 0, read_ms=times).bill([]).readers_seconds == pytest.approx(
        0.001 * (1 + 1 + 3 + 3)
    )


def test_of_a_long_history_fewer_events_are_chosen_from_and_all_reads_count() -> None:
    history = history_of(writes(450, hours=0.1), reads_per_day=240)
    best, all_of_them = history.best(), history.bill([event.at_ms for event in history.events])
    assert best.usd < min(all_of_them.usd, history.bill([]).usd)


def test_a_log_is_told_without_its_compactions_whose_times_stay() -> None:
    def commit(
        version: int, added: tuple[str, ...], removed: tuple[str, ...] = (), *, is_data: bool = True
    ) -> Commit:
        paths, at_ms = {"added_paths": added, "removed_paths": removed}, version * 10
        return Commit(
            version=version,
            committed_ms=at_ms,
            operation="WRITE",
            changed_data=is_data,
            added_bytes=50 * len(added),
            **paths,
        )

    commits = [
        commit(1, ("a", "b")),
        commit(2, ("m",), ("a", "b"), is_data=False),
        commit(3, ("c",), ("m",)),
        commit(4, ("c",), ("c",)),
    ]
    made = snapshot([data_file(70, "c")])
    found = read_history(
        commits, made.files, made, policy=Compaction(), rates=DEFAULT_RATES, compacted_ms=[20, 35]
    )
    assert found.events == (
        LogEvent(at_ms=10, added=(("a", "", 50), ("b", "", 50))),
        LogEvent(at_ms=20),
        LogEvent(at_ms=30, added=(("c", "", 70),), removed=("a", "b")),
        LogEvent(at_ms=35),
        LogEvent(at_ms=40),
    )
