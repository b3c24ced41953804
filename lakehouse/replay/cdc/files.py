"""The flights as change data, as AWS DMS or Debezium would capture them from a database.

The imagined database has one row per flight. An announcement inserts the row; any other event
updates it, at the time of the event. Announcements that are delivered in the replay's first six
hours arrive as a full load (DMS) or a snapshot (Debezium). All other events arrive as changes. Some
changes are late, and some are repeated.

- `landing/dms/flights/2013/01/01/20130101-05-JFK.csv`; for a full load `…/LOAD2013010105b.csv`.
- `landing/debezium/flights/2013-01-01T05-JFK.json`.
"""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from io import StringIO
from itertools import groupby
from operator import attrgetter
from typing import Any

from lakehouse.delta.columns import field_names
from lakehouse.replay.files import LandingFile, by_file, hour_text, utc_text
from lakehouse.tables import bronze

# The last letter in the name of a full load's file.
_ORIGINS = {"EWR": "a", "JFK": "b", "LGA": "c"}
_EPOCH = datetime(1970, 1, 1)
_LOADING = timedelta(hours=6)
_COLUMNS = field_names(bronze.flight_events.landing.schema)


def sorted_changes(
    rows: Iterable[Mapping[str, Any]], *, shape: str, first: datetime
) -> list[LandingFile]:
    """The files for these rows, sorted by hour and name.

    `rows` must be sorted by hour and origin, as for `files.event_files`. `shape` is `dms` or
    `debezium`. `first` is the replay's first hour.
    """
    return sorted(_files(rows, shape, first), key=attrgetter("hour", "name"))


def _files(rows: Iterable[Mapping[str, Any]], shape: str, first: datetime) -> Iterator[LandingFile]:
    for (hour, origin), group in groupby(rows, key=by_file):
        events = [{name: row[name] for name in _COLUMNS} for row in group]
        loaded = [event for event in events if _is_loaded(event, hour, first)]
        changes = [event for event in events if not _is_loaded(event, hour, first)]
        if shape == "debezium":
            lines = [_event(event, is_snapshot=_is_loaded(event, hour, first)) for event in events]
            name = f"landing/debezium/flights/{hour_text(hour)}-{origin}.json"
            content = b"".join(lines)
            yield LandingFile(hour=hour, name=name, content=content, event_count=len(events))
            continue
        folder = f"landing/dms/flights/{hour:%Y/%m/%d}"
        if loaded:
            name = f"{folder}/LOAD{hour:%Y%m%d%H}{_ORIGINS[origin]}.csv"
            content = _csv(loaded, is_load=True)
            yield LandingFile(hour=hour, name=name, content=content, event_count=len(loaded))
        if changes:
            name = f"{folder}/{hour:%Y%m%d-%H}-{origin}.csv"
            content = _csv(changes, is_load=False)
            yield LandingFile(hour=hour, name=name, content=content, event_count=len(changes))


def _is_loaded(event: Mapping[str, Any], hour: datetime, first: datetime) -> bool:
    """Whether an event that is delivered in `hour` belongs to the full load or snapshot."""
    return hour < first + _LOADING and event["event_type"] == "scheduled"


def _position(event: Mapping[str, Any]) -> int:
    """The change's position in the database's log: ordered by the event's time, then its rank."""
    return _seconds(event["event_time"]) * 10 + event["event_rank"]


def _seconds(time: datetime) -> int:
    return round((time - _EPOCH).total_seconds())


def _csv(events: Sequence[Mapping[str, Any]], *, is_load: bool) -> bytes:
    """A file as DMS writes it, with a header line. A full load has no `Op` and no position."""
    out = StringIO()
    lines = csv.writer(out, lineterminator="\n")
    heads = [*events[0], "change_seq"]
    lines.writerow(heads if is_load else ["Op", *heads])
    for event in events:
        fields = [_field(value) for value in event.values()]
        if is_load:
            lines.writerow([*fields, _field(None)])
        else:
            code = "I" if event["event_type"] == "scheduled" else "U"
            lines.writerow([code, *fields, f"{_position(event):035}"])
    return out.getvalue().encode()


def _field(value: Any) -> Any:
    if value is None:
        return "NULL"  # the default of DMS
    if isinstance(value, datetime):
        return utc_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    return value


def _event(event: Mapping[str, Any], *, is_snapshot: bool) -> bytes:
    seconds = _seconds(event["event_time"])
    source = {
        "connector": "postgresql",
        "ts_ms": seconds * 1000,
        "lsn": _position(event),
        "snapshot": str(is_snapshot).lower(),
    }
    code = "c" if event["event_type"] == "scheduled" else "u"
    if is_snapshot:
        code = "r"
    payload = {
        "before": None,
        "after": event,
        "source": source,
        "op": code,
        "ts_ms": seconds * 1000,
    }
    return json.dumps(payload, separators=(",", ":"), default=utc_text).encode() + b"\n"
