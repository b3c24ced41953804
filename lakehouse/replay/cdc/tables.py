"""The demo's tables if flights arrive as change data: the bronze table has one row per flight."""

from typing import TYPE_CHECKING

from lakehouse import Debezium, Dms, Landing, Merge, Overwrite, Table, table
from lakehouse.tables import bronze, gold, silver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

assert bronze.flight_events.landing.schema is not None
_COLUMNS = bronze.flight_events.landing.schema
SOURCES = {
    "dms": Landing(
        prefix="landing/dms/flights/",
        format="csv",
        schema=f"Op STRING, {_COLUMNS}, change_seq STRING",
        null_value="NULL",
        changes=Dms(position=("change_seq",), committed_at="event_time"),
    ),
    "debezium": Landing(
        prefix="landing/debezium/flights/", format="json", schema=_COLUMNS, changes=Debezium()
    ),
}


def change_tables(shape: str) -> dict[str, Table]:
    """The tables of flights from bronze to gold, by key, inputs first.

    `shape` is a key of `SOURCES`. Silver and gold have the transforms of the usual demo.
    """
    rows = Table(key="bronze/flights", source=SOURCES[shape], write=Merge(keys=("flight_id",)))
    newest = silver.flights.transform
    daily = gold.carrier_daily.transform
    delays = gold.route_delays.transform
    assert newest is not None and daily is not None and delays is not None

    @table(key="silver/flights", inputs=[rows], write=silver.flights.write)
    def flights(flights: "DataFrame") -> "DataFrame":
        return newest(flights)

    tables = [
        rows,
        flights,
        Table(
            key="gold/carrier_daily",
            inputs=(flights, bronze.airlines),
            write=Overwrite(),
            transform=daily,
        ),
        Table(
            key="gold/route_delays",
            inputs=(flights, silver.weather),
            write=Overwrite(),
            transform=delays,
        ),
    ]
    return {each.key: each for each in tables}
