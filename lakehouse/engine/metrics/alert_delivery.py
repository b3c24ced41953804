"""Records alerts in the journal, and sends messages to a webhook (when: `core/metrics/alerts.py`).

Each sensor has one file, `_lakehouse/alerts/<sensor>.json`, which only this sensor replaces. The
file contains the firing alerts, and the resolved alerts whose end is not delivered yet. The sensor
deletes its file when it has no alerts.

**Safety properties**
- `send` returns within `_SECONDS`, even if the webhook never answers.
- The webhook's address is a secret: no file, message or error contains it.
"""

import contextlib
import json
import threading
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from urllib.error import HTTPError

from lakehouse.core.metrics.alerts import Alert
from lakehouse.engine.journal.records import encoded
from lakehouse.engine.store import Store

_FOLDER = "_lakehouse/alerts"
_SECONDS = 5.0


def read_alerts(store: Store, sensor: str) -> tuple[Alert, ...]:
    """The alerts that a sensor recorded.

    If the file is damaged, the result is empty, so that the sensor sends the alerts again.
    """
    with contextlib.suppress(FileNotFoundError):
        return _decoded(store.read(_name(sensor)))
    return ()


def write_alerts(store: Store, sensor: str, alerts: Sequence[Alert]) -> None:
    """Replaces the alerts that a sensor recorded."""
    if alerts:
        store.put(_name(sensor), encoded({"alerts": [asdict(alert) for alert in alerts]}))
    else:
        store.delete([_name(sensor)])


def all_alerts(store: Store) -> tuple[Alert, ...]:
    """The alerts of all sensors, the oldest first. Damaged files are skipped."""
    names = [file.name for file in store.list(_FOLDER)]
    alerts = [alert for data in store.read_many(names) for alert in _decoded(data)]
    return tuple(sorted(alerts, key=lambda alert: alert.since_ms))


def send(url: str, text: str) -> str:
    """Sends a message in the format of Slack and Teams.

    Returns why the message was not delivered, or an empty string. An attempt that takes too long
    continues in its thread. If that attempt succeeds later, the message arrives twice, because the
    caller tries again after a pause.
    """
    outcomes = list[str]()
    attempt = threading.Thread(target=lambda: outcomes.append(_post(url, text)), daemon=True)
    attempt.start()
    attempt.join(_SECONDS)
    return outcomes[0] if outcomes else f"no answer within {_SECONDS:g} s"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirections, which would turn the message into a GET request."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post(url: str, text: str) -> str:
    """Sends the message; returns why it was not delivered, or an empty string.

    The text of an error may contain the secret address, so only the HTTP status or the error's type
    is returned.
    """
    try:
        # The setting accepts http:// and https:// only.
        request = urllib.request.Request(  # noqa: S310
            url,
            data=json.dumps({"text": text}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS):
            return ""
    except HTTPError as error:
        error.close()
        return f"HTTP status {error.code}"
    except Exception as error:
        return type(getattr(error, "reason", error)).__name__


def _name(sensor: str) -> str:
    return f"{_FOLDER}/{sensor}.json"


def _decoded(data: bytes) -> tuple[Alert, ...]:
    try:
        return tuple(Alert(**each) for each in json.loads(data)["alerts"])
    except (ValueError, TypeError, KeyError):
        return ()
