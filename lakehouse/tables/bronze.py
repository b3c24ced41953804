"""Bronze: what landed, row by row, with its source file and landing time."""

from lakehouse.core.policy import Compaction
from lakehouse.core.table import Append, Landing, Overwrite, Table

flight_events = Table(
    key="bronze/flight_events",
    source=Landing(
        prefix="landing/flight_events/",
        format="json",
        schema=(
            "event_id STRING, event_type STRING, event_rank INT, event_time TIMESTAMP, flight_id STRING, flight_date DATE, carrier STRING, "
            "flight INT, tailnum STRING, origin STRING, dest STRING, distance INT, scheduled_departure TIMESTAMP, departed_at TIMESTAMP, "
            "dep_delay INT, arrived_at TIMESTAMP, arr_delay INT, air_time INT, cancelled BOOLEAN"
        ),
        derived={"event_date": "to_date(event_time)", "event_hour": "hour(event_time)"},
        required=("event_id", "event_type", "event_time", "flight_id"),
    ),
    write=Append(partition_by=("event_date", "event_hour")),
    compaction=Compaction(min_small_files=40),
    fresh_within_hours=24,
    description="Every event of every flight as it was delivered: scheduled, departed, cancelled, arrived; some late, some twice.",
)

weather = Table(
    key="bronze/weather",
    source=Landing(
        prefix="landing/weather/",
        format="json",
        schema=(
            "origin STRING, temp STRING, dewp STRING, humid STRING, wind_dir STRING, wind_speed STRING, wind_gust STRING, precip STRING, "
            "pressure STRING, visib STRING, time_hour TIMESTAMP"
        ),
        required=("origin", "time_hour"),
    ),
    write=Append(),
    compaction=Compaction(min_small_files=8),
    fresh_within_hours=24,
    description="Hourly weather as the stations send it: text, with NA where an instrument was silent.",
)

planes = Table(
    key="bronze/planes",
    source=Landing(
        prefix="landing/reference/planes/",
        format="csv",
        schema="tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT, engine STRING",
        null_value="NA",
        required=("tailnum",),
    ),
    write=Overwrite(),
    description="The planes by tail number; the newest file is the table.",
)

airports = Table(
    key="bronze/airports",
    source=Landing(
        prefix="landing/reference/airports/",
        format="csv",
        schema="faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING",
        null_value="NA",
        required=("faa",),
    ),
    write=Overwrite(),
    description="The airports by FAA code; the newest file is the table.",
)

airlines = Table(
    key="bronze/airlines",
    source=Landing(
        prefix="landing/reference/airlines/", format="csv", schema="carrier STRING, name STRING", null_value="NA", required=("carrier",)
    ),
    write=Overwrite(),
    description="The airlines by carrier code; the newest file is the table.",
)
