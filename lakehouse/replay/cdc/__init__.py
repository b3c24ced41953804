"""The demo as change data of a database: `LAKEHOUSE_REPLAY=dms` or `debezium`."""
