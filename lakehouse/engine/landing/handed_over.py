"""The landed files that the sensor found, handed over to the run that it asks for: `_lakehouse/landed/<layer>/<name>.json`.

The object is written anew for each run. It stands in the place of a listing, so that a run that comes late, or twice, finds in the ledger
what is loaded already.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.batches import LandedFile
from lakehouse.engine.store import Store


def hand_over(store: Store, table_key: str, landing: Landing, files: Iterable[LandedFile]) -> None:
    """Write what waits for the next run of a table."""
    found = {"prefix": landing.prefix, "files": [asdict(file) for file in files]}
    store.put(_name(table_key), json.dumps(found, separators=(",", ":")).encode())


def handed_over(store: Store, table_key: str, landing: Landing) -> list[LandedFile] | None:
    """What was handed over; `None` where nothing was, or nothing that is understood: the prefix is to be listed then."""
    try:
        found = json.loads(store.read(_name(table_key)))
        return [LandedFile(**file) for file in found["files"]] if found["prefix"] == landing.prefix else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _name(table_key: str) -> str:
    return f"_lakehouse/landed/{table_key}.json"
