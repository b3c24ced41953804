"""The demo as change data of a database: `LAKEHOUSE_REPLAY_CDC=dms` or `debezium`."""
