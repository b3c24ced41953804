"""Silver: one row per thing, typed, newest state."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.core.policy import Compaction
from lakehouse.core.table import Merge, table
from lakehouse.tables import bronze


@table(
    key="silver/flights",
    inputs=[bronze.flight_events],
    write=Merge(keys=("flight_id",), order_by=("event_time", "event_rank")),
    compaction=Compaction(min_small_files=8),
    fresh_within_hours=24,
)
def flights(flight_events: DataFrame) -> DataFrame:
    """One row per flight with its latest known state, right under late, repeated and out-of-order events."""
    return flight_events.select(
        "flight_id",
        F.col("event_type").alias("status"),
        "event_time",
        "event_rank",
        "flight_date",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "distance",
        "scheduled_departure",
        "departed_at",
        "dep_delay",
        "arrived_at",
        "arr_delay",
        "air_time",
    )


@table(
    key="silver/weather",
    inputs=[bronze.weather],
    write=Merge(keys=("origin", "observed_at"), order_by=("landed_at",)),
    compaction=Compaction(min_small_files=8),
    fresh_within_hours=24,
)
def weather(weather: DataFrame) -> DataFrame:
    """Hourly weather per airport: numbers, with null where an instrument was silent; the last delivery of an hour counts."""
    numbers = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust", "precip", "pressure", "visib")
    return weather.select(
        "origin",
        F.col("time_hour").alias("observed_at"),
        *(F.expr(f"try_cast(nullif({name}, 'NA') AS DECIMAL(12, 6))").alias(name) for name in numbers),
        F.col("_landed_at").alias("landed_at"),
    )
