"""The partition columns and table properties of random tables."""

from collections.abc import Mapping

# fmt: off
# Partition columns, and the values that a row may have there, as SQL.
PARTITIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "no partitions": ("", ()),
    "partitions: string": ("p STRING", (
        "'a b'", r"'it\'s'", "'ü%20日'", "NULL", "'x/y=z'", "'q\"u`o\\\\te'", "'[b]*?{c}'",
        "'plus+&#'", "''", "' lead'", "'a\\tb'")),
    "partitions: int and date": ("p INT, q DATE", (
        "1, DATE'2013-01-01'", "-3, DATE'2013-01-01'", "NULL, DATE'0099-12-31'",
        "2147483647, NULL", "1, DATE'2024-02-29'")),
    "partitions: timestamp": ("p TIMESTAMP", (
        "TIMESTAMP'2013-01-01 05:00:00'", "TIMESTAMP'2013-01-01 05:00:00.5'", "NULL",
        "TIMESTAMP'1969-12-31 23:59:59.000001'")),
    "partitions: timestamp_ntz and decimal": ("p TIMESTAMP_NTZ, q DECIMAL(6,2)", (
        "TIMESTAMP_NTZ'2013-01-01 05:00:00.123', 1.5", "NULL, -0.05",
        "TIMESTAMP_NTZ'2013-01-02', NULL", "NULL, 1000")),
    "partitions: double and boolean": ("p DOUBLE, q BOOLEAN", (
        "DOUBLE('NaN'), true", "0D, false", "-0D, false", "NULL, NULL", "1E300D, true",
        "0.1D, NULL", "DOUBLE('-Infinity'), true")),
    "partitions: string and int": ("p STRING, q INT", (
        "'a', 1", "'a', NULL", "NULL, 1", "'b ü', 2", "NULL, NULL")),
    "partitions: odd column names": ("`select` STRING, `Ünï` INT", (
        "'a', 1", "'a', NULL", "NULL, 1", "'b ü', 2", "NULL, NULL")),
}
# fmt: on
# What a table may be made with; `Random` decides for each.
PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "deletion vectors": {"delta.enableDeletionVectors": "true"},
    "column mapping by name": {"delta.columnMapping.mode": "name"},
    "column mapping by id": {"delta.columnMapping.mode": "id"},
    "V2 checkpoints": {"delta.checkpointPolicy": "v2"},
    "row tracking": {"delta.enableRowTracking": "true"},
    "in-commit timestamps": {"delta.enableInCommitTimestamps": "true"},
    "change data feed": {"delta.enableChangeDataFeed": "true"},
    "random file prefixes": {"delta.randomizeFilePrefixes": "true"},
    "optimized write": {"delta.autoOptimize.optimizeWrite": "true"},
    "auto compaction": {"delta.autoOptimize.autoCompact": "true"},
    "no column statistics": {"delta.dataSkippingNumIndexedCols": "0"},
    "checkpoints with statistics as struct": {
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
    },
    "checkpoints without statistics": {
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "false",
    },
}
