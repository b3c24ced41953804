"""Late and repeated deliveries, as many as the seed gives and no more."""

import pandas
import pytest

from lakehouse.replay.flight_events import deliver

HOUR = pandas.Timedelta(hours=1)


@pytest.mark.long
def test_two_in_a_hundred_are_late_and_one_in_two_hundred_comes_twice(
    events: pandas.DataFrame, deliveries: pandas.DataFrame
) -> None:
    first, second = deliveries.iloc[: len(events)], deliveries.iloc[len(events) :]
    late_hours = (first.delivered - first.event_time.dt.floor("h")) // HOUR
    assert late_hours.value_counts().sort_index().to_dict() == {
        0: 981_656,
        1: 3_281,
        2: 3_366,
        3: 3_318,
        4: 3_358,
        5: 3_250,
        6: 3_386,
    }
    assert len(second) == 5_016


def test_a_second_copy_comes_with_the_first_or_within_six_hours_of_it(
    events: pandas.DataFrame, deliveries: pandas.DataFrame
) -> None:
    first = deliveries.iloc[: len(events)].set_index("event_id").delivered
    second = deliveries.iloc[len(events) :]
    assert second.event_id.is_unique
    apart = (second.delivered - first[second.event_id].to_numpy()) // HOUR
    assert set(apart) == set(range(7))


def test_a_delivery_does_not_depend_on_what_else_is_delivered(
    events: pandas.DataFrame, deliveries: pandas.DataFrame
) -> None:
    some = events.iloc[1_000:2_000].reset_index(drop=True)
    expected = deliveries[deliveries.event_id.isin(set(some.event_id))]
    found, wanted = (
        sorted(frame.event_id + frame.delivered.astype(str)) for frame in (deliver(some), expected)
    )
    assert found == wanted
