"""The lake's own small objects below `_lakehouse/`, as JSON.

- Batch manifests and segments: `_lakehouse/ingest/` (`land/ledger.py`).
- Leases on tables: `_lakehouse/locks/` (`lake/lease.py`).
- Unverified commits of compactions: `_lakehouse/unverified/` (`compact/verify.py`).
- Records of `maintain` calls: `_lakehouse/maintained/` (`lake/declared_tables.py`).
- The newest report page: `_lakehouse/reports/report.html` (`report/run.py`).

What has ended, and what the lake notes about tables, are tables: `_lakehouse/operations`
(`lake/operations.py`) and `_lakehouse/records` (`lake/records.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

from lakehouse.base.errors import Broken


def encoded(content: Mapping[str, Any]) -> bytes:
    """A record's content as it is stored."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def damaged(name: str, error: Exception) -> Broken:
    """The error for a record that cannot be read."""
    return Broken(
        f"journal: {name} cannot be read ({type(error).__name__}: {error}); "
        "restore it from a copy of the lake"
    )
