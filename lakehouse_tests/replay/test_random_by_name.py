"""Chance that depends on a name and a purpose alone."""

import pandas
import pytest

from lakehouse.replay.flight_events import draw

NAMES = pandas.Series([f"flight-{number}" for number in range(100_000)])


def test_purposes_are_independent_and_shares_come_out_even() -> None:
    late, twice = draw(NAMES, "late") % 1000 < 500, draw(NAMES, "twice") % 1000 < 500
    for share, expected in ((late.mean(), 0.5), (twice.mean(), 0.5), ((late & twice).mean(), 0.25)):
        assert share == pytest.approx(expected, abs=0.01)
