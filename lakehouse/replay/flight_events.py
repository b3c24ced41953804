"""The events of each flight, and when they are delivered.

A flight is announced. Then it is cancelled, or it departs and usually arrives.

When events happen, in UTC:
- A flight is announced 3 to 9 hours before its scheduled departure. A hash of the flight's id
  determines the exact minute.
- A cancelled flight (no departure time) is cancelled at its scheduled departure.
- Any other flight departs at its scheduled departure plus its delay. The delay is at least -43
  minutes, so a flight always departs after its announcement.
- A flight arrives after its air time and a taxi time. The data contain arrivals in the
  destination's local time. All time zones are whole hours from UTC, so the minute of the arrival is
  known. A taxi time of 5 to 64 minutes is chosen to match that minute. A flight with an arrival
  time but no air time was diverted and flew on. Its air time is set to two hours more than its
  distance takes at 7 miles a minute.
- A flight that departed but has no arrival time never arrives: its departure is its last event.

An event is delivered in the file of its hour. One in fifty events is one to six hours late. One in
two hundred is delivered twice: the second copy is in the same file, or in the file of one of the
next six hours. A hash of the event's id determines whether the event is late or repeated, and by
how many hours.

Run as a program, this module writes the year's deliveries, and its weather observations, to a
folder, sorted by the hour in which they land.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pandas
import pyarrow
from pandas import util

from lakehouse.replay.play import data_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The order of a flight's events at the same time. `cancelled` and `departed` share a rank, because
# no flight has both events.
RANKS = {"scheduled": 0, "cancelled": 1, "departed": 1, "arrived": 2}
_TEXT = pandas.ArrowDtype(pyarrow.string())
_COPIED = ("carrier", "flight", "tailnum", "origin", "dest", "distance")
_DELAYS = ("dep_delay", "arr_delay", "air_time")
_LATE_PER_MILLE = 20
_TWICE_PER_MILLE = 5
SEED = 2013


def flights_of_the_year() -> pandas.DataFrame:
    """One row per flight: the columns of its events in their final state, and `announced_at`.

    Times are UTC without tzinfo.
    """
    raw = pandas.read_csv(data_folder() / "flights.csv.zip")  # `NA` is NaN: such columns are floats
    date = _digits(raw.year, 4) + "-" + _digits(raw.month, 2) + "-" + _digits(raw.day, 2)
    clock = _digits(raw.hour * 100 + raw.minute, 4)
    names = [raw[name].astype(_TEXT) for name in ("carrier", "flight", "origin")]
    flight_id = date.str.cat([*names, clock], sep="-")
    scheduled_hour = pandas.to_datetime(raw.time_hour, format="%Y-%m-%dT%H:%M:%SZ").dt.as_unit("s")
    scheduled = scheduled_hour + _minutes(raw.minute)
    notice_minutes = pandas.Series(180 + draw(flight_id, "announced") % 361)
    departed = scheduled + _minutes(raw.dep_delay)
    return pandas.DataFrame(
        {
            "flight_id": flight_id,
            **{name: raw[name] for name in _COPIED},
            "flight_date": date,
            "scheduled_departure": scheduled,
            "departed_at": departed,
            "arrived_at": departed + _minutes(_minutes_to_arrival(raw)),
            **{name: raw[name].astype("Int64") for name in _DELAYS},
            "announced_at": scheduled - _minutes(notice_minutes),
        }
    )


def events_of(flights: pandas.DataFrame) -> pandas.DataFrame:
    """One row per event: the `row` of its flight, and its id, type, rank and time."""
    times = {
        "scheduled": flights.announced_at,
        "cancelled": flights.scheduled_departure[flights.departed_at.isna()],
        "departed": flights.departed_at.dropna(),
        "arrived": flights.arrived_at.dropna(),
    }
    events = [
        pandas.DataFrame(
            {
                "row": at.index,
                "event_id": (flights.flight_id[at.index] + f"-{event_type}").array,
                "event_type": event_type,
                "event_rank": RANKS[event_type],
                "event_time": at.array,
            }
        )
        for event_type, at in times.items()
    ]
    return pandas.concat(events, ignore_index=True).astype({"event_type": "category"})


def deliver(events: pandas.DataFrame) -> pandas.DataFrame:
    """One row per delivery: the columns of its event, and the hour `delivered`.

    An event that is delivered twice has two rows.
    """
    ids = events.event_id
    is_late = draw(ids, "late") % 1000 < _LATE_PER_MILLE
    is_twice = draw(ids, "twice") % 1000 < _TWICE_PER_MILLE
    late_hours = is_late * (1 + draw(ids, "hours late") % 6)
    first = events.assign(delivered=_later(events.event_time.dt.floor("h"), late_hours))
    second = first[is_twice]
    second = second.assign(
        delivered=_later(second.delivered, draw(ids[is_twice], "second copy") % 7)
    )
    return pandas.concat([first, second], ignore_index=True)


def draw(names: pandas.Series, purpose: str) -> "NDArray[numpy.int64]":
    """A pseudorandom number from 0 to 2^62 - 1 for each name.

    The numbers of different purposes (of at most 11 characters) are independent.
    """
    key = f"{SEED} {purpose:<11}"  # 16 bytes, the key of SipHash
    hash_array: Any = util.hash_array  # loaded late by pandas, which hides its type
    hashes = hash_array(names.to_numpy(object), hash_key=key, categorize=False)
    return (hashes >> numpy.uint64(2)).astype(numpy.int64)


def _later(times: pandas.Series, hours: "NDArray[numpy.int64]") -> pandas.Series:
    return times + hours.astype("timedelta64[h]")


def _minutes_to_arrival(raw: pandas.DataFrame) -> pandas.Series:
    """Minutes from departure to arrival: the air time, and 5 to 64 minutes of taxi time.

    The taxi time makes the minute of the arrival equal to the minute in the data.
    """
    air_minutes = raw.air_time.fillna(raw.distance // 7 + 120)
    shortest = air_minutes + 5
    clock_minutes = _minute_of_day(raw.arr_time) - _minute_of_day(raw.dep_time)
    return shortest + (clock_minutes - shortest) % 60


def _minute_of_day(clock: pandas.Series) -> pandas.Series:
    """The minute of the day of local times like 1735 for 17:35."""
    return clock // 100 * 60 + clock % 100


def _minutes(count: pandas.Series) -> "NDArray[numpy.timedelta64]":
    """Minutes as durations; NaN becomes NaT."""
    seconds = numpy.nan_to_num(count.to_numpy() * 60).astype("timedelta64[s]")
    seconds[count.isna().to_numpy()] = numpy.timedelta64("NaT")
    return seconds


def _digits(number: pandas.Series, width: int) -> pandas.Series:
    return number.astype(_TEXT).str.pad(width, fillchar="0")


_FLIGHT = (
    "flight_id",
    "flight_date",
    "carrier",
    "flight",
    "tailnum",
    "origin",
    "dest",
    "distance",
    "scheduled_departure",
)
_KNOWN_FROM_DEPARTURE = ("departed_at", "dep_delay")
_KNOWN_FROM_ARRIVAL = ("arrived_at", "arr_delay", "air_time")
# Columns in local time, which are dropped, because local time repeats an hour when summer time
# ends. The column `time_hour`, which stays, is in UTC.
_STATION_CLOCK = ["year", "month", "day", "hour"]
# A day or two of events: few enough that an hour is read in milliseconds.
_ROW_GROUP_ROWS = 1 << 12


def delivered_events() -> pandas.DataFrame:
    """All deliveries in landing order: the file's `hour`, and the event's columns.

    Each event has the state of its flight as known at the time of the event.
    """
    flights = flights_of_the_year()
    deliveries = deliver(events_of(flights))
    deliveries["origin"] = flights.origin.astype("category").take(deliveries.row).to_numpy()
    deliveries = deliveries.sort_values(
        ["delivered", "origin", "event_time", "row", "event_rank"], ignore_index=True
    )
    flight_of_event = flights.take(deliveries.row).reset_index(drop=True)
    has_arrived = deliveries.event_type == "arrived"
    has_departed = has_arrived | (deliveries.event_type == "departed")
    rows = deliveries[["event_id", "event_type", "event_rank", "event_time"]]
    rows.insert(0, "hour", deliveries.delivered)
    state = {
        **{name: flight_of_event[name] for name in _FLIGHT},
        **{name: flight_of_event[name].where(has_departed) for name in _KNOWN_FROM_DEPARTURE},
        **{name: flight_of_event[name].where(has_arrived) for name in _KNOWN_FROM_ARRIVAL},
    }
    return rows.assign(**state, cancelled=deliveries.event_type == "cancelled")


def observations() -> pandas.DataFrame:
    """All observations with their `hour`, sorted by hour and station."""
    weather = pandas.read_csv(data_folder() / "weather.csv", dtype=str, keep_default_na=False)
    hour = pandas.to_datetime(weather.time_hour, format="%Y-%m-%dT%H:%M:%SZ").dt.as_unit("s")
    rows = weather.drop(columns=_STATION_CLOCK)
    rows.insert(0, "hour", hour)
    return rows.sort_values(["hour", "origin"], ignore_index=True)


def _write(path: Path, rows: pandas.DataFrame) -> None:
    rows.to_parquet(path, index=False, compression="zstd", row_group_size=_ROW_GROUP_ROWS)


if __name__ == "__main__":
    year = Path(sys.argv[1])
    # The larger file comes last, so that errors show early.
    _write(year / "weather.parquet", observations())
    _write(year / "events.parquet", delivered_events())
