"""Inventories of a lake's storage: our own scan, and the reports that it or AWS wrote, read back.

Layout, as AWS S3 Inventory has it: `<folder>/<source bucket>/<configuration>/<stamp>/manifest.json` and `manifest.checksum`,
`<folder>/<source bucket>/<configuration>/data/<uuid>.parquet`, `…/hive/dt=<stamp>/symlink.txt`.
Source: Amazon S3 user guide, "Locating your inventory list".
"""

from lakehouse.engine.inventory.log_locations import Places, landing_places
from lakehouse.engine.inventory.reconcile_lake import (
    SCAN_AGAIN_HOURS,
    SETTLED_MS,
    LakeReport,
    fresh_report,
    known_report,
    makes_its_own,
    read_table_files,
    reconcile_lake,
    reconcile_report,
    settled_ms,
)
from lakehouse.engine.inventory.report_rows import ReportRows
from lakehouse.engine.inventory.scan import SCAN, Scanned, scan
from lakehouse.engine.inventory.stored_reports import REPORTS, Report, checksum_of, newest_report, read_keys, read_report, stamps_of

__all__ = [
    "REPORTS",
    "SCAN",
    "SCAN_AGAIN_HOURS",
    "SETTLED_MS",
    "LakeReport",
    "Places",
    "Report",
    "ReportRows",
    "Scanned",
    "checksum_of",
    "fresh_report",
    "known_report",
    "landing_places",
    "makes_its_own",
    "newest_report",
    "read_keys",
    "read_report",
    "read_table_files",
    "reconcile_lake",
    "reconcile_report",
    "scan",
    "settled_ms",
    "stamps_of",
]
