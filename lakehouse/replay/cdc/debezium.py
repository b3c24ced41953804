"""The demo's tables where the flights arrive from Debezium."""

from lakehouse.replay.cdc.tables import change_tables
from lakehouse.tables.bronze import airlines as airlines
from lakehouse.tables.bronze import airports as airports
from lakehouse.tables.bronze import planes as planes
from lakehouse.tables.bronze import weather as weather
from lakehouse.tables.silver import weather as silver_weather  # noqa: F401  # it is found by its table

bronze_flights, flights, carrier_daily, route_delays = change_tables("debezium").values()
