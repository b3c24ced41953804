"""The flights of the package as stories that can have happened."""

import pandas


def test_every_flight_of_the_package_is_told_once(
    flights: pandas.DataFrame, events: pandas.DataFrame
) -> None:
    assert (len(flights), flights.flight_id.nunique()) == (336_776, 336_776)
    counts = {"scheduled": 336_776, "departed": 328_521, "arrived": 328_063, "cancelled": 8_255}
    assert events.event_type.value_counts().to_dict() == counts
    assert events.event_id.nunique() == sum(counts.values())


def test_a_flight_is_cancelled_or_departs_and_only_then_arrives(
    flights: pandas.DataFrame, events: pandas.DataFrame
) -> None:
    rows = {
        kind: set(events.row[events.event_type == kind])
        for kind in ("scheduled", "cancelled", "departed", "arrived")
    }
    assert rows["cancelled"].isdisjoint(rows["departed"])
    assert rows["cancelled"] | rows["departed"] == rows["scheduled"] == set(range(len(flights)))
    assert rows["arrived"] < rows["departed"]
    assert len(rows["departed"] - rows["arrived"]) == 458


def test_time_and_rank_rise_along_every_story(events: pandas.DataFrame) -> None:
    told = events.sort_values(["row", "event_time", "event_rank"])
    same_flight = (told.row == told.row.shift()).to_numpy()
    assert (told.event_time.diff()[same_flight] > pandas.Timedelta(0)).all()
    assert (told.event_rank.diff()[same_flight] >= 1).all()
