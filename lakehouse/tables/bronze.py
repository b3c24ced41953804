"""Bronze: rows as they landed."""

from typing import Any

from lakehouse import Append, Archive, Compaction, Landing, Overwrite, Table, Ttl

flight_events = Table(
    key="bronze/flight_events",
    source=Landing(
        prefix="landing/flight_events/",
        format="json",
        schema="""
            event_id STRING, event_type STRING, event_rank INT, event_time TIMESTAMP,
            flight_id STRING, flight_date DATE, carrier STRING, flight INT, tailnum STRING,
            origin STRING, dest STRING, distance INT,
            scheduled_departure TIMESTAMP, departed_at TIMESTAMP, arrived_at TIMESTAMP,
            dep_delay INT, arr_delay INT, air_time INT, cancelled BOOLEAN
        """,
        derived={"event_date": "to_date(event_time)", "event_hour": "hour(event_time)"},
        required=("event_id", "event_type", "event_rank", "event_time", "flight_id"),
    ),
    write=Append(partition_by=("event_date", "event_hour")),
    compaction=Compaction(min_small_files=40),
    # Rows stay in the table for a month, counted back from the newest row, so none are archived
    # while no events arrive. Then they stay in the archive for half a year.
    archive=Archive(older_than_days=31, keep_days=183, clock="newest_row"),
    fresh_within_hours=24,
    description="""Events of flights as delivered: scheduled, cancelled, departed, arrived.

Some events are late, some come twice. Each has the whole state of its flight as known at the time.
Partitioned by the hour (UTC) of the event, so late events add small files to past hours. Delays and
air time are in minutes.""",
    column_descriptions={
        "event_rank": "order of the event types of a flight, for events at the same time",
        "event_time": "when it happened (UTC)",
        "flight_date": "local day of the scheduled departure",
        "carrier": "carrier code, as in bronze/airlines",
        "tailnum": "tail number, as in bronze/planes",
        "origin": "FAA code of the airport of departure",
        "dest": "FAA code of the destination",
        "distance": "miles between the airports",
        "dep_delay": "minutes after the scheduled departure, early ones negative",
        "arr_delay": "minutes after the scheduled arrival, early ones negative",
        "air_time": "minutes in the air",
    },
)

weather = Table(
    key="bronze/weather",
    source=Landing(
        prefix="landing/weather/",
        format="json",
        schema="""
            origin STRING, time_hour TIMESTAMP, temp STRING, dewp STRING, humid STRING,
            wind_dir STRING, wind_speed STRING, wind_gust STRING, precip STRING, pressure STRING,
            visib STRING
        """,
        required=("origin", "time_hour"),
    ),
    write=Append(),
    compaction=Compaction(min_small_files=6),
    ttl=Ttl(column="time_hour", days=60, clock="newest_row"),
    fresh_within_hours=24,
    description=(
        "Hourly observations of three airports' weather stations, as sent: values are text, NA if"
        " missing."
    ),
    column_descriptions={
        "origin": "FAA code of the airport",
        "time_hour": "the hour of the observation (UTC)",
        "temp": "temperature in degrees Fahrenheit",
        "dewp": "dew point in degrees Fahrenheit",
        "humid": "relative humidity in percent",
        "wind_dir": "direction of the wind in degrees",
        "wind_speed": "miles per hour",
        "wind_gust": "miles per hour",
        "precip": "precipitation in inches",
        "pressure": "sea level pressure in millibars",
        "visib": "visibility in miles",
    },
)


def _reference(name: str, schema: str, **options: Any) -> Table:
    """A table whose rows each landed file replaces. The first column is required."""
    required = (schema.partition(" ")[0],)
    source = Landing(
        prefix=f"landing/reference/{name}/",
        format="csv",
        schema=schema,
        required=required,
        null_value="NA",
    )
    return Table(key=f"bronze/{name}", source=source, write=Overwrite(), **options)


planes = _reference(
    "planes",
    "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats"
    " INT, speed INT, engine STRING",
    column_descriptions={
        "year": "year of manufacture",
        "speed": "average cruising speed in miles per hour",
        "seats": "number of seats",
    },
    description=(
        "Planes by tail number, as in the newest file. A fifth of the tail numbers that flew are"
        " missing."
    ),
)
airports = _reference(
    "airports",
    "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
    column_descriptions={
        "alt": "altitude in feet",
        "tz": "hours from UTC",
        "dst": "zone of daylight saving time",
        "tzone": "IANA time zone",
    },
    description=(
        "Airports by FAA code, as in the newest file; altitude in feet, time zone in hours from"
        " UTC."
    ),
)
airlines = _reference(
    "airlines",
    "carrier STRING, name STRING",
    description="Airlines by carrier code, as in the newest file.",
)
