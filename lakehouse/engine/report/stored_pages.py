"""Keeps the morning pages of the last days: `_lakehouse/reports/<date>.html` and `.json`.

The newest page is also `_lakehouse/reports/report.html`. Of one day, the last page is kept.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from lakehouse.engine.store import Store

NEWEST = "_lakehouse/reports/report.html"
_FOLDER = "_lakehouse/reports"
_DAYS_KEPT = 14
_DATED = re.compile(r"(\d{4}-\d{2}-\d{2})\.(?:html|json)")


def store_page(store: Store, html: str, values: Mapping[str, Any], *, now_ms: int) -> None:
    """Stores a page and its values under the day of `now_ms`, and deletes pages of old days."""
    date, page = _date(now_ms), html.encode("utf-8", "replace")
    store.put(f"{_FOLDER}/{date}.json", json.dumps(values).encode())
    store.put(f"{_FOLDER}/{date}.html", page)
    store.put(NEWEST, page)
    dated = _dated_files(store)
    old = sorted(dated)[:-_DAYS_KEPT]
    store.delete([name for day in old for name in dated[day]])


def earlier_values(store: Store, *, now_ms: int) -> dict[str, Any]:
    """The values of the newest page of an earlier day; empty if there is none."""
    today = _date(now_ms)
    dates = [date for date in sorted(_dated_files(store)) if date < today]
    with suppress(FileNotFoundError, ValueError, IndexError):
        values = json.loads(store.read(f"{_FOLDER}/{dates[-1]}.json"))
        if isinstance(values, dict):
            return values
    return {}


def _dated_files(store: Store) -> dict[str, list[str]]:
    """The names of the stored pages and values, by date. Other files in the folder are left out."""
    found = dict[str, list[str]]()
    for file in store.list(_FOLDER):
        match = _DATED.fullmatch(file.name.removeprefix(f"{_FOLDER}/"))
        if match:
            found.setdefault(match[1], []).append(file.name)
    return found


def _date(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%d}"
