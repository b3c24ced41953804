"""Gold: numbers that people ask for. Counts and sums are exact; an average is one division of the two."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from lakehouse.core.table import Overwrite, table
from lakehouse.tables import bronze, silver


@table(key="gold/carrier_daily", inputs=[silver.flights, bronze.airlines], write=Overwrite(), fresh_within_hours=24)
def carrier_daily(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Flights, cancellations and delays per carrier and day."""
    names = airlines.select("carrier", F.col("name").alias("airline"))
    return (
        flights.groupBy("flight_date", "carrier")
        .agg(
            F.count("*").alias("flights"),
            _count(F.col("status") == "cancelled").alias("cancelled"),
            _count(F.col("dep_delay").isNotNull()).alias("departed"),
            _count(F.col("status") == "arrived").alias("arrived"),
            _count(F.col("dep_delay") >= 15).alias("departed_late"),
            F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("departure_delay_minutes"),
            F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("arrival_delay_minutes"),
            F.avg("dep_delay").alias("average_departure_delay"),
            F.avg("arr_delay").alias("average_arrival_delay"),
        )
        .join(F.broadcast(names), "carrier", "left")
    )


@table(key="gold/route_delays", inputs=[silver.flights, silver.weather], write=Overwrite(), fresh_within_hours=24)
def route_delays(flights: DataFrame, weather: DataFrame) -> DataFrame:
    """Delays per route and day, with the weather at the hour of departure (the scheduled one where none is known)."""
    at_departure = weather.select("origin", F.col("observed_at").alias("hour"), "wind_speed", "precip", "visib")
    joined = flights.withColumn("hour", F.date_trunc("hour", F.coalesce("departed_at", "scheduled_departure"))).join(at_departure, ["origin", "hour"], "left")
    return joined.groupBy("flight_date", "origin", "dest").agg(
        F.count("*").alias("flights"),
        _count(F.col("status") == "cancelled").alias("cancelled"),
        _count(F.col("dep_delay").isNotNull()).alias("departed"),
        F.coalesce(F.sum("dep_delay"), F.lit(0)).alias("departure_delay_minutes"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("arrival_delay_minutes"),
        F.avg("dep_delay").alias("average_departure_delay"),
        _count(F.col("visib").isNotNull()).alias("flights_with_weather"),
        _count(F.col("precip") > 0).alias("flights_in_rain"),
        _count(F.col("visib") < 3).alias("flights_in_low_visibility"),
        F.sum("wind_speed").cast("DECIMAL(18, 6)").alias("wind_speed_sum"),
    )


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, True))
