"""Keeps the morning pages of the last days: `_lakehouse/reports/<date>.html` and `.json`.

The newest page is also stored as `_lakehouse/reports/report.html`. A page replaces earlier pages of
its day.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lakehouse.engine.store import Store

NEWEST = "_lakehouse/reports/report.html"
_FOLDER = "_lakehouse/reports"
_DAYS_KEPT = 14
_DATED = re.compile(r"(\d{4}-\d{2}-\d{2})\.(?:html|json)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPage:
    """Values of the newest page of an earlier day. `None` and absent scores are unknown."""

    created_ms: int | None = None
    records_bytes: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])


def store_page(store: Store, html: str, values: Mapping[str, Any], *, now_ms: int) -> None:
    """Stores a page and its values for the day of `now_ms`.

    Keeps the newest `_DAYS_KEPT` days that have a page, and deletes all older pages.
    """
    date = _date(now_ms)
    page = html.encode("utf-8", "replace")
    store.put(f"{_FOLDER}/{date}.json", json.dumps(values).encode())
    store.put(f"{_FOLDER}/{date}.html", page)
    store.put(NEWEST, page)
    dated = _dated_files(store)
    old_dates = sorted(dated)[:-_DAYS_KEPT]
    store.delete([name for old_date in old_dates for name in dated[old_date]])


def earlier_page(store: Store, *, now_ms: int) -> EarlierPage:
    """The values of the newest page of an earlier day; all unknown if it cannot be read."""
    today = _date(now_ms)
    dates = [date for date in sorted(_dated_files(store)) if date < today]
    try:
        values = json.loads(store.read(f"{_FOLDER}/{dates[-1]}.json"))
        records = values["records"]
        return EarlierPage(
            created_ms=int(values["created_ms"]),
            records_bytes=None if records is None else int(records["size_bytes"]),
            scores={
                str(each["table"]): float(each["score"])
                for each in values["tables"]
                if each["score"] is not None
            },
        )
    except (IndexError, FileNotFoundError, ValueError, KeyError, TypeError):
        return EarlierPage()


def _dated_files(store: Store) -> dict[str, list[str]]:
    """The names of the stored pages and values, by date. Other files are ignored."""
    names = dict[str, list[str]]()
    for file in store.list(_FOLDER):
        match = _DATED.fullmatch(file.name.removeprefix(f"{_FOLDER}/"))
        if match:
            names.setdefault(match[1], []).append(file.name)
    return names


def _date(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%d}"
