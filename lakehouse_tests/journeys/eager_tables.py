"""The lake's own tables without those that no table reads, and two files of weather are due, so that a journey need not wait for six."""

from dataclasses import replace

from lakehouse import Compaction
from lakehouse.tables import bronze, gold, silver
from lakehouse.tables.bronze import airlines, flight_events
from lakehouse.tables.gold import carrier_daily
from lakehouse.tables.silver import flights

weather = replace(bronze.weather, compaction=Compaction(min_small_files=2))
observations = replace(silver.weather, inputs=(weather,))
route_delays = replace(gold.route_delays, inputs=(flights, observations))

__all__ = [
    "airlines",
    "carrier_daily",
    "flight_events",
    "flights",
    "observations",
    "route_delays",
    "weather",
]
