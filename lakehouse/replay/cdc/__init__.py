"""The demo as change data of an operational database: `LAKEHOUSE_REPLAY_CDC=dms` or `debezium`."""
