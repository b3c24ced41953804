"""The flights of the package as stories that can have happened."""

import pandas

from lakehouse.replay.files import read_flights


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


def test_times_agree_with_the_clocks_of_the_package(flights: pandas.DataFrame) -> None:
    raw = read_flights()
    for at, clock in ((flights.departed_at, raw.dep_time), (flights.arrived_at, raw.arr_time)):
        known = at.notna()
        assert (known == clock.notna()).all()
        assert (at[known].dt.minute == clock[known] % 100).all()
    ground = (flights.arrived_at - flights.departed_at) / pandas.Timedelta(minutes=1) - raw.air_time
    assert (ground.min(), ground.max()) == (5, 64)
    local = flights.departed_at.dropna().dt.tz_localize("UTC").dt.tz_convert("America/New_York")
    assert (local.dt.hour == raw.dep_time.dropna() // 100 % 24).all()


def test_flights_are_announced_three_to_nine_hours_ahead_and_within_the_year(
    flights: pandas.DataFrame,
) -> None:
    ahead = (flights.scheduled_departure - flights.announced_at) / pandas.Timedelta(hours=1)
    assert (ahead.min(), ahead.max()) == (3, 9)
    assert flights.announced_at.min() >= pandas.Timestamp(2013, 1, 1)
