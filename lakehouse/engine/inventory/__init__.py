"""Inventories of a lake's storage: our own scan, and the reports that it or AWS wrote, read back.

Layout, as AWS S3 Inventory has it: `<folder>/<source bucket>/<configuration>/<stamp>/manifest.json` and `manifest.checksum`,
`<folder>/<source bucket>/<configuration>/data/<uuid>.parquet`, `…/hive/dt=<stamp>/symlink.txt`.
Source: Amazon S3 user guide, "Locating your inventory list".
"""

from lakehouse.engine.inventory.lake import LakeReport, open_books, reconcile_lake, settled_ms
from lakehouse.engine.inventory.report import REPORTS, Report, newest_report, read_keys, read_report, reports_of
from lakehouse.engine.inventory.scan import SCAN, Scanned, scan

__all__ = [
    "REPORTS",
    "SCAN",
    "LakeReport",
    "Report",
    "Scanned",
    "newest_report",
    "open_books",
    "read_keys",
    "read_report",
    "reconcile_lake",
    "reports_of",
    "scan",
    "settled_ms",
]
