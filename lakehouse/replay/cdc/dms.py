"""The demo's tables if flights arrive as change data from AWS DMS."""

from lakehouse.replay.cdc.tables import change_tables

# The other tables of the demo are unchanged. They are imported to be found in this module.
from lakehouse.tables.bronze import airlines, airports, planes, weather  # noqa: F401
from lakehouse.tables.silver import weather as silver_weather  # noqa: F401

bronze_flights, flights, carrier_daily, route_delays = change_tables("dms").values()
