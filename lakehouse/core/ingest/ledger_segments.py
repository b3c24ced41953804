"""Folds manifests of landed batches into a segment, and forgets old files.

A segment holds the manifests of batch 1 to batch `number`. Newer batches have manifests of their
own. A file is forgotten when it is gone from the landing area and older than `FORGET_AFTER_MS`. Of
a forgotten file that was loaded, a fingerprint of its path is kept.

**Safety properties**
- A file in the landing area is never forgotten. If the area is empty, no file is forgotten, since
  the area may be unreachable (`test_ledger_segments.py`).
- A batch that did not reach the table, the newest batch, and the newest batch with files are kept
  whole (`test_ledger_segments.py`).
- If a file lands under the name of a loaded and forgotten file, it is not loaded. The fingerprint
  shows that the name was used, and the file is set aside for a person (`test_ledger_segments.py`).
- A batch with forgotten files is never repeated as if it were complete (`test_folding.py`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from lakehouse.core.declaration.write_modes import Overwrite, WriteMode
from lakehouse.core.ingest.batches import FOREIGN, Batch, KnownFile, Ledger, SetAside, fingerprint
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.core.units import DAY_MS

# Within this time, a repeated file is recognised by its content. Any time would be safe, since
# fingerprints are kept.
FORGET_AFTER_MS = 30 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSegment:
    """The batches up to `number` that still have a file that is not forgotten.

    `forgotten` are the fingerprints of forgotten files. `forgotten_batch` is the last batch with a
    loaded file that is forgotten.
    """

    number: int = 0
    batches: tuple[Batch, ...] = ()
    last_taken: str = ""
    forgotten: frozenset[bytes] = frozenset()
    forgotten_batch: int = 0
    columns: tuple[AddedColumn, ...] = ()

    @property
    def ledger(self) -> Ledger:
        """The ledger of these batches."""
        before = Ledger(
            newest=None,
            seen={},
            last_taken=self.last_taken,
            forgotten=self.forgotten,
            columns=self.columns,
        )
        return extend_ledger(before, self.batches)


def extend_ledger(before: Ledger, batches: Iterable[Batch]) -> Ledger:
    """The ledger extended by more batches.

    A file that was taken counts as taken, even if it was set aside later because it changed.
    """
    seen = dict(before.seen)
    newest = before.newest
    last_taken = before.last_taken
    columns = {column.name: column for column in before.columns}
    for batch in batches:
        for aside in batch.set_aside:
            path = f"{batch.prefix}{aside.name}"
            seen[path] = _aside(
                aside,
                seen.get(path),
                was_loaded=path not in seen and fingerprint(path) in before.forgotten,
            )
        for file in batch.files:
            path = f"{batch.prefix}{file.name}"
            continued = seen.get(path) if file.loaded_records else None
            earlier = continued.as_loaded if continued else None
            seen[path] = KnownFile(
                size_bytes=file.size_bytes,
                modified_ms=file.modified_ms,
                digest=file.digest,
                etag=file.etag,
                text_bytes=file.text_bytes,
                text_digest=file.text_digest,
                earlier=(earlier.digest, *earlier.earlier) if earlier else (),
            )
            last_taken = max(last_taken, path)
        columns |= {column.name: column for column in batch.columns if column.name not in columns}
        newest = batch
    return replace(
        before,
        newest=newest,
        seen=seen,
        last_taken=last_taken,
        columns=tuple(columns.values()),
    )


def find_unfinished(
    ledger: Ledger, write: WriteMode, *, arrived: int, read: Callable[[int], Batch]
) -> Batch | None:
    """The batch to repeat: the oldest batch with files after `arrived`; `None` if there is none.

    `arrived` is the last batch in the table's log. For an `Overwrite`, the newest batch with files
    is repeated, since it replaces all batches before it. `read` returns an older batch by its
    number.
    """
    newest = ledger.newest
    if newest is None:
        return None
    numbers = range(arrived + 1, newest.number + 1)
    in_order = reversed(numbers) if isinstance(write, Overwrite) else numbers
    batches = (newest if number == newest.number else read(number) for number in in_order)
    return next((batch for batch in batches if batch.files), None)


def fold_batches(
    before: LedgerSegment,
    newer: Sequence[Batch],
    *,
    lying: Collection[str],
    prefix: str,
    arrived: int,
    now_ms: int,
) -> LedgerSegment:
    """The segment extended by newer batches, without the files that may be forgotten.

    `lying` are the paths of all files that are now in the landing area, below `prefix`. These files
    are kept. `arrived` is the last batch in the table.
    """
    batches = (*before.batches, *newer)
    ledger = extend_ledger(before.ledger, newer)
    whole = {batches[-1].number, max((batch.number for batch in batches if batch.files), default=0)}
    kept = {
        path
        for batch in batches
        if batch.number > arrived or batch.number in whole
        for path in _paths(batch)
    }
    gone = {
        path
        for path, known in ledger.seen.items()
        if lying and path not in lying and path not in kept and path.startswith(prefix)
        if known.modified_ms is not None and now_ms - known.modified_ms > FORGET_AFTER_MS
    }
    reduced = (_without(batch, gone) for batch in batches)
    return LedgerSegment(
        number=batches[-1].number,
        batches=tuple(
            batch for batch in reduced if batch.files or batch.set_aside or batch.number in whole
        ),
        last_taken=ledger.last_taken,
        columns=ledger.columns,
        forgotten=before.forgotten
        | {fingerprint(path) for path in gone if ledger.seen[path].is_taken},
        forgotten_batch=max(
            [
                before.forgotten_batch,
                *(batch.number for batch in batches if not gone.isdisjoint(_taken(batch))),
            ]
        ),
    )


def lost_files(older: Iterable[Batch], kept: LedgerSegment, *, lying: Collection[str]) -> list[str]:
    """Files of `older` batches that are missing in `kept`, the segment that replaces these batches.

    Files that were set aside and are no longer in the landing area do not count.
    """
    seen = kept.ledger.seen
    return sorted(
        path
        for batch in older
        for path in _paths(batch)
        if path not in seen
        and fingerprint(path) not in kept.forgotten
        and (path in lying or path in _taken(batch))
    )


def _aside(aside: SetAside, before: KnownFile | None, *, was_loaded: bool) -> KnownFile:
    """The ledger's new entry for a file that is set aside; `before` is its previous entry.

    If there is no previous entry, `was_loaded` is whether a file of this name was loaded and
    forgotten.
    """
    present = KnownFile(
        size_bytes=aside.size_bytes,
        modified_ms=aside.modified_ms,
        digest=aside.digest,
        etag=aside.etag,
    )
    if not (was_loaded if before is None else before.is_taken):
        return replace(present, is_taken=False, is_foreign=aside.why.startswith(FOREIGN))
    loaded = KnownFile(size_bytes=aside.size_bytes) if before is None else before.as_loaded
    has_loaded_content = bool(aside.digest) and aside.digest == loaded.digest
    return present if has_loaded_content else replace(present, loaded=loaded)


def _taken(batch: Batch) -> set[str]:
    return {f"{batch.prefix}{file.name}" for file in batch.files}


def _paths(batch: Batch) -> set[str]:
    return _taken(batch) | {f"{batch.prefix}{aside.name}" for aside in batch.set_aside}


def _without(batch: Batch, gone: Collection[str]) -> Batch:
    """The batch without the files with these paths."""
    files = tuple(file for file in batch.files if f"{batch.prefix}{file.name}" not in gone)
    return replace(
        batch,
        files=files,
        set_aside=tuple(
            aside for aside in batch.set_aside if f"{batch.prefix}{aside.name}" not in gone
        ),
    )
