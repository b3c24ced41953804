"""Gold, computed by plain pandas from the files of the data package.

Of the replay only this is taken: which event is in the file of which hour. Everything else is computed anew, with Python's own fractions.
"""

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import pandas

from lakehouse.replay.flight_events import deliver, events_of, flights_of_the_year
from lakehouse.replay.play import data_folder

_KEYS = ("flight_date", "carrier", "origin", "dest")
_MOST_DIFFERENCES = 20


def gold(start: datetime, until: datetime) -> dict[str, pandas.DataFrame]:
    """`carrier_daily` and `route_delays` after a replay that landed the hours from `start` to before `until` (UTC), and all layers."""
    flights = known_flights(start, until)
    return {
        "carrier_daily": _carrier_daily(flights),
        "route_delays": _route_delays(flights, _weather(start, until)),
    }


def differences(expected: pandas.DataFrame, actual: pandas.DataFrame) -> list[str]:
    """What in `actual` is not as expected, a line each, values compared exactly; the order of rows and columns does not matter."""
    if missing := sorted(set(expected.columns) ^ set(actual.columns)):
        return [
            f"column {name}: {'missing' if name in expected.columns else 'not expected'}"
            for name in missing
        ]
    keys = [name for name in _KEYS if name in expected.columns]
    wanted, found = _by_key(expected, keys), _by_key(actual, keys)
    lines = [
        f"{_named(keys, key)}: {len(rows)} rows of this key"
        for key, rows in found.items()
        if len(rows) > 1
    ]
    lines += [f"{_named(keys, key)}: missing" for key in wanted if key not in found]
    lines += [f"{_named(keys, key)}: not expected" for key in found if key not in wanted]
    for key in wanted.keys() & found.keys():
        row, other = wanted[key][0], found[key][0]
        lines += [
            f"{_named(keys, key)}: {name} is {other[name]}, {row[name]} expected"
            for name in row
            if row[name] != other[name]
        ]
    more = len(lines) - _MOST_DIFFERENCES
    return [*sorted(lines)[:_MOST_DIFFERENCES], *([f"and {more} more"] if more > 0 else [])]


@cache
def _package() -> tuple[pandas.DataFrame, pandas.DataFrame]:
    """The flights of the package with their id, and every delivery of an event: flight, what happened, hour."""
    flights = pandas.read_csv(
        data_folder() / "flights.csv.zip", keep_default_na=False, na_values=["NA"]
    )
    flights["flight_id"] = [
        f"{row.year}-{row.month:02}-{row.day:02}-{row.carrier}-{row.flight}-{row.origin}-{row.sched_dep_time:04}"
        for row in flights.itertuples()
    ]
    told = flights_of_the_year()
    deliveries = deliver(events_of(told))
    flight_id = told.flight_id.to_numpy()[deliveries.row]
    return flights, pandas.DataFrame(
        {
            "flight_id": flight_id,
            "what": deliveries.event_type.astype(str),
            "hour": deliveries.delivered,
        }
    )


def known_flights(start: datetime, until: datetime) -> pandas.DataFrame:
    """The flights of which any event was delivered, and of each what the furthest of those events tells."""
    flights, deliveries = _package()
    within = deliveries[(deliveries.hour >= start) & (deliveries.hour < until)]
    heard = {
        what: set(within.flight_id[within.what == what])
        for what in ("scheduled", "cancelled", "departed", "arrived")
    }
    known = flights[flights.flight_id.isin(set.union(*heard.values()))].copy()
    known["arrived"] = known.flight_id.isin(heard["arrived"])
    known["departed"] = known.arrived | known.flight_id.isin(heard["departed"])
    known["cancelled"] = known.flight_id.isin(heard["cancelled"])
    known.loc[~known.departed, "dep_delay"] = None
    known.loc[~known.arrived, "arr_delay"] = None
    known["flight_date"] = [
        date(*day) for day in zip(known.year, known.month, known.day, strict=True)
    ]
    return known


def _weather(start: datetime, until: datetime) -> pandas.DataFrame:
    """The observations of these hours, as fractions: a value is the text of the file."""
    weather = pandas.read_csv(data_folder() / "weather.csv", dtype=str, keep_default_na=False)
    at = pandas.to_datetime(weather.time_hour).dt.tz_localize(None)
    weather = weather.assign(departure_hour=at)[(at >= start) & (at < until)]
    for name, digits in (("precip", 2), ("wind_speed", 5), ("visib", 2)):
        weather[name] = [
            None if text == "NA" else Fraction(_rounded(Fraction(text), digits))
            for text in weather[name]
        ]
    return weather[["origin", "departure_hour", "precip", "wind_speed", "visib"]].assign(
        observed=True
    )


def _carrier_daily(flights: pandas.DataFrame) -> pandas.DataFrame:
    airlines = (
        pandas.read_csv(data_folder() / "airlines.csv", keep_default_na=False)
        .set_index("carrier")
        .name
    )
    result = _grouped(
        flights, ["flight_date", "carrier"], lambda group: _delays(group) | _arrivals(group)
    )
    return result.assign(airline=result.carrier.map(airlines))


def _route_delays(flights: pandas.DataFrame, weather: pandas.DataFrame) -> pandas.DataFrame:
    scheduled = pandas.to_datetime(flights.time_hour).dt.tz_localize(None) + pandas.to_timedelta(
        flights.minute, unit="min"
    )
    departure = scheduled + pandas.to_timedelta(flights.dep_delay, unit="min")
    joined = flights.assign(departure_hour=departure.dt.floor("h")).merge(
        weather, on=["origin", "departure_hour"], how="left"
    )
    return _grouped(
        joined, ["flight_date", "origin", "dest"], lambda group: _delays(group) | _conditions(group)
    )


def _grouped(
    rows: pandas.DataFrame, keys: list[str], tell: Callable[[pandas.DataFrame], dict[str, Any]]
) -> pandas.DataFrame:
    found = [dict(zip(keys, key, strict=True)) | tell(group) for key, group in rows.groupby(keys)]
    return pandas.DataFrame(found, dtype=object)


def _delays(group: pandas.DataFrame) -> dict[str, Any]:
    departures, arrivals = _values(group.dep_delay), _values(group.arr_delay)
    return {
        "flight_count": len(group),
        "cancelled_count": int(group.cancelled.sum()),
        "departed_count": int(group.departed.sum()),
        "late_departure_count": sum(minutes >= 15 for minutes in departures),
        "dep_delay_minutes": int(sum(departures)) if departures else None,
        "arr_delay_minutes": int(sum(arrivals)) if arrivals else None,
        "average_dep_delay": _average(departures),
        "average_arr_delay": _average(arrivals),
    }


def _arrivals(group: pandas.DataFrame) -> dict[str, Any]:
    return {
        "arrived_count": int(group.arrived.sum()),
        "late_arrival_count": sum(minutes >= 15 for minutes in _values(group.arr_delay)),
    }


def _conditions(group: pandas.DataFrame) -> dict[str, Any]:
    return {
        "observed_count": int(group.observed.notna().sum()),
        "wet_count": sum(inches > 0 for inches in _values(group.precip)),
        "average_wind": _average(_values(group.wind_speed)),
        "average_visibility": _average(_values(group.visib)),
    }


def _values(column: pandas.Series) -> list[Any]:
    return [value for value in column if not pandas.isna(value)]


def _average(values: list[Any]) -> Decimal | None:
    return (
        _rounded(Fraction(sum(Fraction(value) for value in values), len(values)), 2)
        if values
        else None
    )


def _rounded(value: Fraction, digits: int) -> Decimal:
    """Half up, that is away from zero; exact, since the fraction times ten to the digits is halved as a whole number."""
    doubled = abs(value) * 2 * 10**digits
    whole = (doubled.numerator // doubled.denominator + 1) // 2
    return Decimal(whole if value >= 0 else -whole).scaleb(-digits)


def _by_key(
    frame: pandas.DataFrame, keys: list[str]
) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in frame.to_dict("records"):
        plain = {str(name): _plain(value) for name, value in row.items()}
        found.setdefault(tuple(plain[name] for name in keys), []).append(plain)
    return found


def _plain(value: Any) -> Any:
    """One spelling per value: whole numbers as int, also where a null beside them has made the column one of floats."""
    if value is None or value is pandas.NaT or value != value:
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _named(keys: list[str], key: tuple[Any, ...]) -> str:
    return " ".join(f"{name}={value}" for name, value in zip(keys, key, strict=True))
