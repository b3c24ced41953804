"""The oracle sees what is wrong."""

from datetime import datetime

from lakehouse_tests import oracle


def test_one_event_more_or_less_is_seen() -> None:
    until = datetime(2013, 1, 2, 15)
    before = oracle.gold(datetime(2013, 1, 1), until)
    after = oracle.gold(datetime(2013, 1, 1), datetime(2013, 1, 2, 16))
    for name, expected in before.items():
        assert oracle.differences(expected, after[name])


def test_what_is_known_at_the_end_of_the_year_are_the_numbers_of_the_package() -> None:
    known = oracle.known_flights(datetime(2013, 1, 1), datetime(2014, 1, 2))
    assert (len(known), known.cancelled.sum(), known.departed.sum()) == (336_776, 8_255, 328_521)
    assert known.arrived.sum() == 328_063
