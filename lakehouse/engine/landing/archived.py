"""Landed objects that were archived (S3 Glacier, Deep Archive, the archive tiers of Intelligent-Tiering) and restored since.

An archived object cannot be read: the load sets it aside, with its storage class. A restored object can, though a
listing shows it as before: same storage class, time and etag. Only a HEAD tells, so these objects are asked about.
"""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.batches import Batch, Ledger
from lakehouse.core.units import HOUR_MS
from lakehouse.engine.store import Store

# A thousand HEADs cost 0.0004 USD and take some seconds, which a sensor's tick has.
_MOST_ASKED = 1_000
_ASKED_AT_ONCE = 16


def find_restored(
    store: Store, ledger: Ledger, landing: Landing, *, now_ms: int
) -> Collection[str]:
    """The paths of archived files that can be read now. Of very many archived files, each hour asks about the next thousand."""
    archived = sorted(
        path
        for path, known in ledger.seen.items()
        if known.is_archived and path.startswith(landing.prefix)
    )
    if not archived:
        return ()
    start = now_ms // HOUR_MS * _MOST_ASKED % len(archived)
    asked = [*archived[start:], *archived[:start]][:_MOST_ASKED]
    with ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE) as pool:
        is_restored = pool.map(lambda path: _is_readable(store, path), asked)
        return {path for path, is_it in zip(asked, is_restored, strict=True) if is_it}


def restored_paths(batch: Batch, ledger: Ledger) -> Sequence[str]:
    """The files of a batch that an older batch set aside as archived, as the ledger before the batch says."""
    paths = [f"{batch.prefix}{file.name}" for file in batch.files]
    return [path for path in paths if (known := ledger.seen.get(path)) and known.is_archived]


def _is_readable(store: Store, path: str) -> bool:
    with suppress(FileNotFoundError):
        return store.archived_in(path) is None
    return False
