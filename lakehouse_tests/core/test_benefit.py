"""Measured scans decide whether compaction pays, and nothing follows from too few of them."""

from collections.abc import Sequence

import pytest

from lakehouse.core.benefit import Probe, assess_benefit, benefit_backoff, gain_of, probe_budget_seconds, probe_from
from lakehouse.core.reason import Reason

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
    "a gain too small to care": ([probe(0.005, noise=0.001)] * 3, "does not pay", Reason.PROBES_DO_NOT_PAY),
    "only the newest five count": ([probe(0.0)] * 5 + [probe(0.3)] * 5, "pays", Reason.PROBES_PAY),
}


@pytest.mark.parametrize(("probes", "verdict", "reason"), VERDICTS.values(), ids=VERDICTS)
def test_the_verdict_of_several_probes(probes: Sequence[Probe], verdict: str, reason: Reason) -> None:
    found = assess_benefit(probes)
    assert (found.verdict, found.reason) == (verdict, reason)


def test_the_sentence_says_by_how_much_and_how_sure_that_is() -> None:
    assert assess_benefit([probe(0.3, noise=0.0)]).sentence == (
        "1 probe(s) measured scans 30.0% faster after a compaction (between 30.0% and 30.0%)"
    )


def test_what_slows_both_scans_of_a_pair_changes_no_gain() -> None:
    gain = gain_of((1.0, 5.0, 2.0), (0.5, 2.5, 1.0))
    assert gain is not None and (gain.share, gain.low, gain.high) == pytest.approx((0.5, 0.5, 0.5))
    assert gain_of((1.0,), (0.5,)) is None


def test_the_interval_narrows_with_every_pair() -> None:
    widths = [gain.high - gain.low for pairs in (2, 4, 8, 30) if (gain := probe(0.2, noise=0.1, pairs=pairs).gain)]
    assert len(widths) == 4 and widths == sorted(widths, reverse=True)


def test_what_does_not_pay_is_left_alone_twice_as_long_each_time_and_at_most_a_week() -> None:
    def left_alone_hours(probes: Sequence[Probe]) -> float | None:
        backoff = benefit_backoff(probes, probes[-1].measured_ms)
        return None if backoff is None else (backoff.until_ms - probes[-1].measured_ms) / HOUR_MS

    useless = [probe(0.0, hour=hour) for hour in range(10)]
    assert [left_alone_hours(useless[:count]) for count in (2, 3, 4, 5, 9)] == [None, 6, 12, 24, 168]
    assert left_alone_hours([*useless[:4], *[probe(0.5, hour=20)] * 2]) is None


def test_the_back_off_ends_by_itself_and_says_why_it_is_there() -> None:
    useless = [probe(0.0, hour=hour) for hour in range(3)]
    backoff = benefit_backoff(useless, 2 * HOUR_MS)
    assert backoff is not None and backoff.until_ms == 8 * HOUR_MS
    assert backoff.reason is Reason.BACKED_OFF
    assert backoff.sentence.startswith("compaction is tried again in 6.0 h, since it does not pay: 3 probe(s) measured scans")
    assert benefit_backoff(useless, 8 * HOUR_MS) is None


@pytest.mark.parametrize(
    ("count", "probes", "budget"), [(9, [], 0), (10, [], 2), (20, [probe(0.5)], 2), (11, [probe(0.5)] * 3, 0), (11, [probe(0.0)] * 3, 2)]
)
def test_every_tenth_compaction_is_probed_and_each_where_it_does_not_pay(count: int, probes: Sequence[Probe], budget: float) -> None:
    assert probe_budget_seconds(count, 2.0, probes) == pytest.approx(budget)


def test_a_probe_survives_the_journal() -> None:
    assert probe_from(probe(0.2).as_json()) == probe(0.2)
