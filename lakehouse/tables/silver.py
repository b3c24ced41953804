"""Silver: typed rows. Each flight and each observation has one row, in its newest state."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakehouse import Compaction, Merge, table
from lakehouse.tables import bronze

# The types of the weather columns, which land as text.
_MEASURES = {
    "temp": "DECIMAL(5,2)",
    "dewp": "DECIMAL(5,2)",
    "humid": "DECIMAL(5,2)",
    "wind_dir": "INT",
    "wind_speed": "DECIMAL(9,5)",
    "wind_gust": "DECIMAL(9,5)",
    "precip": "DECIMAL(5,2)",
    "pressure": "DECIMAL(6,1)",
    "visib": "DECIMAL(5,2)",
}


@table(
    key="silver/flights",
    inputs=[bronze.flight_events],
    write=Merge(keys=("flight_id",), order_by=("event_time", "event_rank")),
    compaction=Compaction(min_small_files=12),
    fresh_within_hours=24,
    column_descriptions={
        **bronze.flight_events.column_descriptions,
        "status": "the type of the last event",
        "event_time": "time of the last event (UTC)",
    },
)
def flights(flight_events: DataFrame) -> DataFrame:
    """One row per flight in its latest state, also with late, repeated and out-of-order events.

    `status` is the last event, `event_time` its time. Times are UTC; `flight_date` is the local day
    of the scheduled departure.
    """
    return flight_events.select(
        "flight_id",
        "flight_date",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "distance",
        F.col("event_type").alias("status"),
        "cancelled",
        "scheduled_departure",
        "departed_at",
        "arrived_at",
        "dep_delay",
        "arr_delay",
        "air_time",
        "event_time",
        "event_rank",
    )


@table(
    key="silver/weather",
    inputs=[bronze.weather],
    write=Merge(keys=("origin", "observed_at"), order_by=("source_file", "source_line")),
    compaction=Compaction(min_small_files=6),
    fresh_within_hours=24,
    column_descriptions={
        **bronze.weather.column_descriptions,
        "observed_at": "the hour of the observation (UTC)",
    },
)
def weather(weather: DataFrame) -> DataFrame:
    """One row per airport and hour (UTC), as numbers; missing values are null.

    Units are degrees Fahrenheit, miles per hour, inches, millibars and miles. If an observation was
    sent twice, the one in the later file (by name) counts; in the same file, the later line.
    """
    return weather.select(
        "origin",
        F.col("time_hour").alias("observed_at"),
        *[
            F.expr(f"try_cast({name} AS {type_name})").alias(name)
            for name, type_name in _MEASURES.items()
        ],
        F.col("_source_file").alias("source_file"),
        F.col("_source_line").alias("source_line"),
    )
