"""Measured scans decide whether compaction pays, and nothing follows from too few of them."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from lakehouse.core.costs.estimate import SECONDS_PER_OPENING
from lakehouse.core.costs.ledger import Account, account_for
from lakehouse.core.costs.measured_benefit import (
    Probe,
    assess_benefit,
    backoff_until_ms,
    explain_backoff,
    gain_of,
    measure_opening,
    probe_budget_seconds,
    probe_from,
)
from lakehouse.core.reasons import Reason
from lakehouse_tests.core.example_histories import compaction, past, write

HOUR_MS = 3_600_000


def probe(gained: float, *, hour: int = 0, noise: float = 0.01, pairs: int = 5) -> Probe:
    """Scans of a second before, and of less after, with some noise that is the same every time."""
    shaken = [1 + noise * (-1) ** place for place in range(pairs)]
    after = tuple((1 - gained) * shake for shake in shaken)
    return Probe(
        table="bronze/t",
        version_before=1,
        version_after=2,
        measured_ms=hour * HOUR_MS,
        before=(1.0,) * pairs,
        after=after,
        spent_seconds=2.0,
        budget_seconds=3.0,
    )


VERDICTS = {
    "no probe": ([], "not known", Reason.NOT_PROBED),
    "a probe that had no room": ([probe(0.5, pairs=0)], "not known", Reason.NOT_PROBED),
    "one clear gain": ([probe(0.3)], "pays", Reason.PROBES_PAY),
    "no gain, but twice only": ([probe(0.0)] * 2, "not known", Reason.PROBES_UNDECIDED),
    "no gain three times": ([probe(0.0)] * 3, "does not pay", Reason.PROBES_DO_NOT_PAY),
    "slower three times": ([probe(-0.2)] * 3, "does not pay", Reason.PROBES_DO_NOT_PAY),
    "too much noise": ([probe(0.0, noise=0.4)] * 3, "not known", Reason.PROBES_UNDECIDED),
    "a gain too small to care": (
        [probe(0.005, noise=0.001)] * 3,
        "does not pay",
        Reason.PROBES_DO_NOT_PAY,
    ),
    "only the newest five count": ([probe(0.0)] * 5 + [probe(0.3)] * 5, "pays", Reason.PROBES_PAY),
}


@pytest.mark.parametrize(("probes", "verdict", "reason"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_of_several_probes(
    probes: Sequence[Probe], verdict: str, reason: Reason
) -> None:
    found = assess_benefit(probes)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_the_sentence_says_by_how_much_and_how_sure_that_is() -> None:
    told = "1 probe measured scans 30.0% faster after a compaction (between 30.0% and 30.0%)"
    assert assess_benefit([probe(0.3, noise=0.0)]).sentence == told


def test_what_slows_both_scans_of_a_pair_changes_no_gain() -> None:
    gain = gain_of((1.0, 5.0, 2.0), (0.5, 2.5, 1.0))
    assert gain is not None and (gain.share, gain.low, gain.high) == pytest.approx((0.5, 0.5, 0.5))
    assert gain_of((1.0,), (0.5,)) is None


def test_the_interval_narrows_with_every_pair() -> None:
    widths = [
        gain.high - gain.low
        for pairs in (2, 4, 8, 30)
        if (gain := probe(0.2, noise=0.1, pairs=pairs).gain)
    ]
    assert len(widths) == 4 and widths == sorted(widths, reverse=True)


def test_what_does_not_pay_is_left_alone_twice_as_long_each_time_and_at_most_a_week() -> None:
    def left_alone_hours(probes: Sequence[Probe]) -> float | None:
        until_ms = backoff_until_ms(probes)
        return None if until_ms is None else (until_ms - probes[-1].measured_ms) / HOUR_MS

    useless = [probe(0.0, hour=hour) for hour in range(10)]
    assert [left_alone_hours(useless[:count]) for count in (2, 3, 4, 5, 9)] == [
        None,
        6,
        12,
        24,
        168,
    ]
    assert left_alone_hours([*useless[:4], *[probe(0.5, hour=20)] * 2]) is None


def test_the_back_off_ends_by_itself_and_says_why_it_is_there() -> None:
    useless = [probe(0.0, hour=hour) for hour in range(3)]
    assert backoff_until_ms(useless) == 8 * HOUR_MS
    backoff = explain_backoff(8 * HOUR_MS, assess_benefit(useless).sentence, 2 * HOUR_MS)
    assert backoff is not None and backoff.reason is Reason.BACKED_OFF
    assert backoff.sentence.startswith(
        "compaction is tried again in 6.0 h, since it does not pay: 3 probes measured scans"
    )
    assert explain_backoff(8 * HOUR_MS, "", 8 * HOUR_MS) is None


def test_a_probe_that_says_nothing_neither_prolongs_a_back_off_nor_ends_it() -> None:
    useless = [probe(0.0, hour=hour) for hour in range(3)]
    for nothing in (
        [probe(0.0, hour=3, pairs=0)],
        [probe(0.0, hour=3, pairs=0), probe(0.0, hour=4, pairs=1)],
    ):
        assert backoff_until_ms([*useless, *nothing]) == backoff_until_ms(useless) == 8 * HOUR_MS
        assert backoff_until_ms(nothing) is None


def account_of(ours: Sequence[int], first_version: int = 0, others: Sequence[int] = ()) -> Account:
    """An account with our compactions at these versions, and another hand's."""
    commits = [
        replace(compaction(version), user_metadata=None)
        if version in others
        else compaction(version)
        for version in {*ours, *others}
    ]
    commits = [write(first_version, 10), *commits]
    return account_for(past(sorted(commits, key=lambda commit: commit.version)))


def probed_at(version: int, gained: float = 0.5, pairs: int = 5) -> Probe:
    return replace(probe(gained, pairs=pairs), version_before=version - 1, version_after=version)


@pytest.mark.parametrize(
    ("account", "probes", "budget"),
    [
        (account_of(range(1, 10)), [], 0),
        (account_of(range(1, 11)), [], 2),
        (account_of(range(1, 20)), [probed_at(10)], 0),
        (account_of(range(1, 21)), [probed_at(10)], 2),
        (account_of(range(1, 21)), [probed_at(10, gained=0.0)] * 3, 2),
        (account_of(range(1, 12)), [probed_at(10, gained=0.0)] * 3, 2),
        (account_of([10], others=range(1, 10)), [], 0),
        (account_of([10]), [probed_at(900)], 0),
        (account_of(range(1, 12)), [probed_at(10, pairs=0)], 0),
        (account_of(range(1, 21)), [probed_at(10, pairs=0)], 2),
        (account_of(range(1, 13)), [*[probed_at(10, gained=0.0)] * 3, probed_at(11, pairs=0)], 0),
        (account_of(range(1, 22)), [*[probed_at(10, gained=0.0)] * 3, probed_at(11, pairs=0)], 2),
    ],
)
def test_the_tenth_of_ours_since_the_last_probe_is_probed_and_each_where_it_does_not_pay(
    account: Account, probes: Sequence[Probe], budget: float
) -> None:
    assert probe_budget_seconds(account, 2.0, probes) == pytest.approx(budget)


@pytest.mark.parametrize("every", [3, 5, 7, 60, 400])
def test_every_tenth_is_probed_also_where_the_log_holds_fewer_or_always_as_many(every: int) -> None:
    """One compaction in so many commits, and a log that holds the newest 500 of them."""
    probes: list[Probe] = []
    for version in range(every, 100 * every, every):
        account = account_of(
            range(every * (max(0, version - 499) // every + 1), version + 1, every),
            first_version=max(0, version - 499),
        )
        if probe_budget_seconds(account, 2.0, probes):
            probes = [*probes, probed_at(version)][-20:]
    gaps = [
        (after.version_after - before.version_after) / every for before, after in pairwise(probes)
    ]
    assert len(probes) >= 8 and all(9 <= gap <= 11 for gap in gaps)


def test_a_probe_survives_the_journal() -> None:
    assert probe_from(probe(0.2).as_json()) == probe(0.2)


def test_three_probes_tell_what_an_opening_takes_and_none_takes_less_than_nothing() -> None:
    told = [replace(probe(0.1, noise=0), openings_saved=saved) for saved in (10, 20, 20)]
    assert measure_opening(told) == pytest.approx(0.3 / 50)
    assert measure_opening(told[:2]) == SECONDS_PER_OPENING
    assert measure_opening([*told[:2], probe(0.1), probe(0.1, pairs=0)]) == SECONDS_PER_OPENING
    assert measure_opening([replace(each, after=(1.2,) * 5) for each in told]) == 0.0
    assert probe_from(told[0].as_json()).openings_saved == 10
