"""The oracle sees what is wrong, and says it so that a person understands."""

from datetime import date, datetime
from decimal import Decimal

import pandas

from lakehouse_tests import oracle

ROW = {
    "flight_date": date(2013, 1, 1),
    "carrier": "UA",
    "flight_count": 3,
    "arr_delay_minutes": None,
    "average_arr_delay": None,
}
OTHER = ROW | {"carrier": "AA", "arr_delay_minutes": 4, "average_arr_delay": Decimal("2.00")}


def frame(*rows: dict[str, object]) -> pandas.DataFrame:
    return pandas.DataFrame(list(rows), dtype=object)


def test_equal_rows_in_any_order_and_spelling_of_numbers_are_no_difference() -> None:
    read = pandas.DataFrame([OTHER, ROW])[list(reversed(ROW))]
    assert str(read.arr_delay_minutes.dtype) == "float64"
    assert oracle.differences(frame(ROW, OTHER), read) == []


def test_each_kind_of_difference_is_named() -> None:
    expected = frame(ROW, OTHER)
    where = "flight_date=2013-01-01 carrier="
    assert oracle.differences(expected, frame(ROW)) == [f"{where}AA: missing"]
    assert oracle.differences(expected, frame(ROW, OTHER, ROW)) == [
        f"{where}UA: 2 rows of this key"
    ]
    assert oracle.differences(frame(ROW), expected) == [f"{where}AA: not expected"]
    assert oracle.differences(
        expected, frame(ROW, OTHER | {"average_arr_delay": Decimal("2.01")})
    ) == [f"{where}AA: average_arr_delay is 2.01, 2.00 expected"]
    assert oracle.differences(expected, frame(ROW | {"flight_count": None}, OTHER)) == [
        f"{where}UA: flight_count is None, 3 expected"
    ]
    assert oracle.differences(expected, expected.drop(columns="flight_count")) == [
        "column flight_count: missing"
    ]


def test_many_differences_are_cut_short_with_their_number() -> None:
    rows = [ROW | {"carrier": f"{number:02}"} for number in range(30)]
    lines = oracle.differences(frame(*rows), frame(*(row | {"flight_count": 9} for row in rows)))
    assert (len(lines), lines[-1]) == (21, "and 10 more")


def test_one_event_more_or_less_is_seen() -> None:
    until = datetime(2013, 1, 2, 15)
    before = oracle.gold(datetime(2013, 1, 1), until)
    after = oracle.gold(datetime(2013, 1, 1), datetime(2013, 1, 2, 16))
    for name, expected in before.items():
        assert oracle.differences(expected, after[name])


def test_what_is_known_at_the_end_of_the_year_are_the_numbers_of_the_package() -> None:
    known = oracle.known_flights(datetime(2013, 1, 1), datetime(2014, 1, 2))
    assert (len(known), known.cancelled.sum(), known.departed.sum(), known.arrived.sum()) == (
        336_776,
        8_255,
        328_521,
        328_063,
    )
