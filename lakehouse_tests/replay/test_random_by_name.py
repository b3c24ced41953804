"""Chance that depends on a name and a purpose alone."""

import numpy
import pytest

from lakehouse.replay.flight_events import draw

NAMES = numpy.array([f"flight-{number}" for number in range(100_000)], dtype="S")


def test_the_numbers_of_a_name_stay_what_they_are() -> None:
    assert draw(numpy.array([b"2013-01-01-UA-1545-EWR-0515-departed"]), "late").tolist() == [
        3658233741233951999
    ]


def test_a_draw_does_not_depend_on_what_else_is_drawn() -> None:
    assert draw(NAMES[:2:-1], "late").tolist() == draw(NAMES, "late")[:2:-1].tolist()


def test_purposes_are_independent_and_shares_come_out_even() -> None:
    late, twice = draw(NAMES, "late") % 1000 < 500, draw(NAMES, "twice") % 1000 < 500
    for share, expected in ((late.mean(), 0.5), (twice.mean(), 0.5), ((late & twice).mean(), 0.25)):
        assert share == pytest.approx(expected, abs=0.01)


def test_a_name_too_long_to_be_told_from_others_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 40"):
        draw(numpy.array([b"x" * 41]), "late")
