"""The demo's tables where the flights arrive from AWS DMS."""

from lakehouse.replay.cdc.tables import change_tables
from lakehouse.tables.bronze import airlines, airports, planes, weather  # noqa: F401  # they are found as tables
from lakehouse.tables.silver import weather as silver_weather  # noqa: F401

bronze_flights, flights, carrier_daily, route_delays = change_tables("dms").values()
