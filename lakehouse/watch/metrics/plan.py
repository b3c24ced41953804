"""The gauges of a lake: names, labels and help texts.

An unknown value is absent, never 0. No label contains a run, a file or a partition, so the number
of series grows only with the number of tables.
Source: https://prometheus.io/docs/practices/naming/ and .../instrumenting/writing_exporters/
"""

from dataclasses import dataclass

TABLE_LABELS = ("table", "layer")


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge: its full name, its help text, and the names of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = TABLE_LABELS


FILES = Metric("lakehouse_table_files", "Live files.")
SMALL_FILES = Metric("lakehouse_table_small_files", "Live files that are small enough to compact.")
MERGEABLE_FILES = Metric("lakehouse_table_mergeable_files", "Files that a compaction would remove.")
ROWS = Metric("lakehouse_table_rows", "Rows, if the log counts them.")
BYTES = Metric(
    "lakehouse_table_bytes",
    "Bytes by part: live, or tombstoned (removed, but still listed by the log).",
    (*TABLE_LABELS, "part"),
)
HEALTH_SCORE = Metric("lakehouse_table_health_score", "Health, from 0 (bad) to 100.")
LOG_COMMITS = Metric("lakehouse_table_log_commits", "Commits since the newest checkpoint.")
LAST_WRITE = Metric("lakehouse_table_last_commit_timestamp_seconds", "Time of the newest commit.")
LAST_COMPACTION = Metric(
    "lakehouse_table_last_compaction_timestamp_seconds",
    "End of the newest compaction that the log still records.",
)
LAST_VACUUM = Metric(
    "lakehouse_table_last_vacuum_timestamp_seconds",
    "Start of the newest vacuum, even if it deleted nothing. Absent unless vacuums are automatic.",
)
QUARANTINED_ROWS = Metric("lakehouse_quarantined_rows", "Rejected records in quarantine.")
PAUSED = Metric("lakehouse_table_paused", "1 while a person has paused the upkeep, else 0.")
READABLE = Metric("lakehouse_table_readable", "0 if the table's log or pause cannot be read.")
DECISION = Metric(
    "lakehouse_table_decision",
    "1 for the reason why the table would, or would not, be compacted now.",
    (*TABLE_LABELS, "operation", "reason"),
)
CHECK_PASSED = Metric(
    "lakehouse_check_passed",
    "1 if the newest result of the asset's check passed, else 0.",
    (*TABLE_LABELS, "check"),
)
PREDICTION_ERROR = Metric(
    "lakehouse_operation_prediction_error_ratio",
    "Error of the newest prediction, as a share of the actual figure.",
    (*TABLE_LABELS, "operation", "figure"),
)
INVENTORY = Metric(
    "lakehouse_inventory_snapshot_timestamp_seconds",
    "Time of the newest inventory that was loaded.",
    (),
)
RECORDS_BYTES = Metric("lakehouse_dagster_records_bytes", "Bytes of Dagster's own records.", ())
SOURCE_READABLE = Metric(
    "lakehouse_source_readable", "0 if a source about the whole lake cannot be read.", ("source",)
)
READ_AT = Metric("lakehouse_metrics_read_timestamp_seconds", "When these metrics were read.", ())


def labels_of(key: str) -> tuple[str, str]:
    """The labels `table` and `layer` of a table or another asset.

    The layer is the part of the key before the first slash.
    """
    return key, key.partition("/")[0]
