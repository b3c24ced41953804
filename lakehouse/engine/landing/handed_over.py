"""The landed files that the sensor found, handed over to the run that it asks for: `_lakehouse/landed/<layer>/<name>.json`.

The object is written anew for each run, and holds the number of the batch that the run is asked for. It stands in the place of a listing
for that batch alone: a run that comes late, or twice, lists, since a file may have been overwritten since.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.engine.store import Store


def hand_over(store: Store, table_key: str, landing: Landing, batch: int, files: Iterable[LandedFile]) -> None:
    """Write what waits for the run of a table's next batch."""
    found = {"batch": batch, "prefix": landing.prefix, "files": [asdict(file) for file in files]}
    store.put(_name(table_key), json.dumps(found, separators=(",", ":")).encode())


def handed_over(store: Store, table_key: str, landing: Landing, batch: int, newest: Batch | None) -> list[LandedFile] | None:
    """What was handed over for a batch; `None` where the prefix is to be listed.

    It is where the batch does not follow the ledger's `newest`, or where nothing was handed over for it, or nothing that is understood.
    """
    if batch != (0 if newest is None else newest.number) + 1:
        return None
    try:
        found = json.loads(store.read(_name(table_key)))
        is_meant = (found["batch"], found["prefix"]) == (batch, landing.prefix)
        return [LandedFile(**file) for file in found["files"]] if is_meant else None
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _name(table_key: str) -> str:
    return f"_lakehouse/landed/{table_key}.json"
