"""Those of the lake's own tables that lead to one of gold, and weather, which two files make due, so that a journey need not wait for six."""

from dataclasses import replace

from lakehouse import Compaction
from lakehouse.tables import bronze
from lakehouse.tables.bronze import airlines, flight_events
from lakehouse.tables.gold import carrier_daily
from lakehouse.tables.silver import flights

weather = replace(bronze.weather, compaction=Compaction(min_small_files=2))

__all__ = ["airlines", "carrier_daily", "flight_events", "flights", "weather"]
