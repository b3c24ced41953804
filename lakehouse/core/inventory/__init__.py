"""What lies in storage, by an inventory of it, held against what the tables' logs say: to the byte."""

from lakehouse.core.inventory.classify import Classifier
from lakehouse.core.inventory.expiry import KEPT_DAYS, UNFINISHED, expired, stamp_ms
from lakehouse.core.inventory.loaded_reports import Load, load_json, loads_of
from lakehouse.core.inventory.objects import KINDS, RECLAIMABLE, Part, StoredObject, decode_key, plausible_ms
from lakehouse.core.inventory.reconcile import reconcile
from lakehouse.core.inventory.report_manifest import NEEDED_COLUMNS, DataPart, Manifest, manifest_json, parse_manifest
from lakehouse.core.inventory.table_files import Reference, TableFiles, fold_table_files
from lakehouse.core.inventory.table_folders import Owners, table_roots
from lakehouse.core.inventory.usage import OUTSIDE, PAGE_KEYS, Reconciliation, TableShares, UsageShare

__all__ = [
    "KEPT_DAYS",
    "KINDS",
    "NEEDED_COLUMNS",
    "OUTSIDE",
    "PAGE_KEYS",
    "RECLAIMABLE",
    "UNFINISHED",
    "Classifier",
    "DataPart",
    "Load",
    "Manifest",
    "Owners",
    "Part",
    "Reconciliation",
    "Reference",
    "StoredObject",
    "TableFiles",
    "TableShares",
    "UsageShare",
    "decode_key",
    "expired",
    "fold_table_files",
    "load_json",
    "loads_of",
    "manifest_json",
    "parse_manifest",
    "plausible_ms",
    "reconcile",
    "stamp_ms",
    "table_roots",
]
