"""Gold: daily figures of carriers and routes.

Counts and sums are exact. An average is the quotient of a sum and a count, rounded half up to two
decimals.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakehouse import Overwrite, table
from lakehouse.tables import bronze, silver

# A flight is late from 15 minutes on, as the U.S. Department of Transportation counts.
_LATE_MINUTES = 15
_COLUMNS = {
    "flight_date": "local day of the scheduled departure",
    "flight_count": "flights announced",
    "late_departure_count": "departed 15 minutes late or more",
    "late_arrival_count": "arrived 15 minutes late or more",
    "dep_delay_minutes": "sum of the delays at departure, early ones negative",
    "arr_delay_minutes": "sum of the delays at arrival, early ones negative",
    "average_dep_delay": "minutes",
    "average_arr_delay": "minutes",
    "observed_count": "departures whose hour has an observation of the weather",
    "wet_count": "departures in an hour with precipitation",
    "average_wind": "miles per hour",
    "average_visibility": "miles",
}


@table(
    key="gold/carrier_daily",
    inputs=[silver.flights, bronze.airlines],
    write=Overwrite(),
    fresh_within_hours=24,
    column_descriptions=_COLUMNS,
)
def carrier_daily(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Flights, cancellations and delays per carrier and day.

    A flight counts as soon as it is announced. Delays are in minutes, early ones negative; late
    means 15 minutes or more.
    """
    named = airlines.select("carrier", F.col("name").alias("airline"))
    counted = flights.groupBy("flight_date", "carrier").agg(
        *_counts_and_delays(),
        F.count("arrived_at").alias("arrived_count"),
        F.count_if(F.col("arr_delay") >= _LATE_MINUTES).alias("late_arrival_count"),
    )
    return counted.join(named, "carrier", "left")


@table(
    key="gold/route_delays",
    inputs=[silver.flights, silver.weather],
    write=Overwrite(),
    fresh_within_hours=24,
    column_descriptions=_COLUMNS,
)
def route_delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Delays per route and day, with the weather at the origin in the hour of each departure.

    `observed_count` counts departures with a weather observation, `wet_count` departures with rain
    or snow. Delays are in minutes, early ones negative; wind is in miles per hour, visibility in
    miles.
    """
    # The join has only one column `departure_hour`, so `observed_at` shows whether a row was found.
    observations = weather.select(
        "origin",
        F.col("observed_at").alias("departure_hour"),
        "observed_at",
        "precip",
        "wind_speed",
        "visib",
    )
    departures = flights.withColumn("departure_hour", F.date_trunc("hour", "departed_at"))
    return (
        departures.join(observations, ["origin", "departure_hour"], "left")
        .groupBy("flight_date", "origin", "dest")
        .agg(
            *_counts_and_delays(),
            F.count("observed_at").alias("observed_count"),
            F.count_if(F.col("precip") > 0).alias("wet_count"),
            _average("wind_speed").alias("average_wind"),
            _average("visib").alias("average_visibility"),
        )
    )


def _counts_and_delays() -> list[Column]:
    """The figures that both tables have."""
    return [
        F.count("*").alias("flight_count"),
        F.count_if("cancelled").alias("cancelled_count"),
        F.count("departed_at").alias("departed_count"),
        F.count_if(F.col("dep_delay") >= _LATE_MINUTES).alias("late_departure_count"),
        F.sum("dep_delay").alias("dep_delay_minutes"),
        F.sum("arr_delay").alias("arr_delay_minutes"),
        _average("dep_delay").alias("average_dep_delay"),
        _average("arr_delay").alias("average_arr_delay"),
    ]


def _average(name: str) -> Column:
    """The average of an INT or DECIMAL column; null without values.

    Sums of these types are exact, so the order of addition has no effect. The casts keep the
    division decimal.
    """
    total = F.sum(name).cast("DECIMAL(18,5)")
    count = F.nullif(F.count(name), F.lit(0)).cast("DECIMAL(10,0)")
    return (total / count).cast("DECIMAL(10,2)")
