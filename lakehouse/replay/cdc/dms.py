"""The demo's tables if flights arrive from AWS DMS."""

from lakehouse.replay.cdc.tables import change_tables

# Imported so that they are found in this module, too.
from lakehouse.tables.bronze import airlines, airports, planes, weather  # noqa: F401
from lakehouse.tables.silver import weather as silver_weather  # noqa: F401

bronze_flights, flights, carrier_daily, route_delays = change_tables("dms").values()
