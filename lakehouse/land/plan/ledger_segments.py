"""Folds manifests of landed batches into a segment, and forgets old files.

A segment holds the manifests of batch 1 to batch `number`. Newer batches have manifests of their
own. A file is forgotten when it is gone from the landing area and older than `FORGET_AFTER_MS`. If
the file was loaded, a fingerprint of its path is kept.

**Safety properties**
- A file in the landing area is never forgotten. If the area is empty, no file is forgotten, since
  the area may be unreachable (`test_ledger_segments.py`).
- A batch that was not loaded, the newest batch, and the newest batch with files are kept whole
  (`test_ledger_segments.py`).
- If a file lands under the name of a loaded and forgotten file, it is not loaded. The fingerprint
  shows that the name was used, and the file is set aside for a person (`test_ledger_segments.py`).
- If the table's folder was deleted, its batches are repeated. A batch up to `forgotten_batch` whose
  manifest was folded is then refused, because files of these batches are forgotten
  (`PlannedBatches.batch`, `test_folding.py`).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from lakehouse.base.text import DAY_MS
from lakehouse.declare.write_modes import Overwrite, WriteMode
from lakehouse.land.plan.batches import FOREIGN, Batch, KnownFile, Ledger, SetAside, fingerprint

# A file that is gone from the landing area stays known for at least this long after its
# modification. If it was loaded and lands again, it is recognised by its content. Once the file is
# forgotten, any file of its name is set aside. Any value is safe, because fingerprints are kept.
FORGET_AFTER_MS = 30 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSegment:
    """The batches up to `number`, without their forgotten files.

    Batches without a remaining file are omitted, except the newest batch. `forgotten` contains the
    fingerprints of loaded files that are forgotten. `forgotten_batch` is the last batch that loaded
    a file that is forgotten, or 0. `last_taken` and `columns`: see `Ledger`.
    """

    number: int = 0
    batches: tuple[Batch, ...] = ()
    last_taken: str = ""
    forgotten: frozenset[bytes] = frozenset()
    forgotten_batch: int = 0
    columns: tuple[str, ...] = ()

    @property
    def ledger(self) -> Ledger:
        """The ledger of these batches."""
        empty = Ledger(
            newest=None,
            seen={},
            last_taken=self.last_taken,
            forgotten=self.forgotten,
            columns=self.columns,
        )
        return extend_ledger(empty, self.batches)


def extend_ledger(ledger: Ledger, batches: Iterable[Batch]) -> Ledger:
    """The ledger extended by more batches.

    A loaded file keeps `is_taken`, even if a later batch sets a changed file of the same name
    aside.
    """
    seen = dict(ledger.seen)
    newest = ledger.newest
    last_taken = ledger.last_taken
    columns = dict.fromkeys(ledger.columns)
    for batch in batches:
        for aside in batch.set_aside:
            path = f"{batch.prefix}{aside.name}"
            was_loaded = path not in seen and fingerprint(path) in ledger.forgotten
            seen[path] = _entry_set_aside(aside, seen.get(path), was_loaded=was_loaded)
        for file in batch.files:
            path = f"{batch.prefix}{file.name}"
            seen[path] = KnownFile(
                size_bytes=file.size_bytes,
                modified_ms=file.modified_ms,
                digest=file.digest,
                etag=file.etag,
            )
            last_taken = max(last_taken, path)
        columns |= dict.fromkeys(batch.columns)
        newest = batch
    return replace(
        ledger,
        newest=newest,
        seen=seen,
        last_taken=last_taken,
        columns=tuple(columns),
    )


def find_unfinished(
    ledger: Ledger, write: WriteMode, *, last_loaded_batch: int, read: Callable[[int], Batch]
) -> Batch | None:
    """The batch to repeat, or `None`: the oldest batch with files that was not loaded.

    For an `Overwrite`, it is the newest batch with files that was not loaded, since it replaces all
    earlier ones.
    `last_loaded_batch` is the number in the table's log. `read` returns an older batch by its
    number.
    """
    newest = ledger.newest
    if newest is None:
        return None
    numbers: Sequence[int] = range(last_loaded_batch + 1, newest.number + 1)
    if isinstance(write, Overwrite):
        numbers = numbers[::-1]
    for number in numbers:
        batch = newest if number == newest.number else read(number)
        if batch.files:
            return batch
    return None


def fold_batches(
    segment: LedgerSegment,
    newer: Sequence[Batch],
    *,
    landed_paths: Collection[str],
    prefix: str,
    last_loaded_batch: int,
    now_ms: int,
) -> LedgerSegment:
    """The segment extended by newer batches, without the files that may be forgotten.

    `landed_paths` are the full paths of all files in the landing area, which begin with `prefix`.
    These files are kept. Files below another prefix, from an earlier declaration, are kept as well,
    because they were not listed. If `landed_paths` is empty, no file is forgotten.
    `last_loaded_batch` is the last batch in the table's log.
    """
    batches = (*segment.batches, *newer)
    ledger = extend_ledger(segment.ledger, newer)
    newest_number = batches[-1].number
    newest_with_files = max((batch.number for batch in batches if batch.files), default=0)
    whole_numbers = {newest_number, newest_with_files}
    kept_paths = set[str]()
    for batch in batches:
        if batch.number > last_loaded_batch or batch.number in whole_numbers:
            kept_paths |= _paths(batch)
    forgotten_paths = set[str]()
    for path, file in ledger.seen.items():
        if not landed_paths or path in landed_paths or path in kept_paths:
            continue
        was_listed = path.startswith(prefix)
        is_old = file.modified_ms is not None and now_ms - file.modified_ms > FORGET_AFTER_MS
        if was_listed and is_old:
            forgotten_paths.add(path)
    fingerprints = {fingerprint(path) for path in forgotten_paths if ledger.seen[path].is_taken}
    forgotten_batch = segment.forgotten_batch
    remaining = list[Batch]()
    for batch in batches:
        if not forgotten_paths.isdisjoint(_taken(batch)):
            forgotten_batch = max(forgotten_batch, batch.number)
        reduced = _without(batch, forgotten_paths)
        if reduced.files or reduced.set_aside or batch.number in whole_numbers:
            remaining.append(reduced)
    return LedgerSegment(
        number=newest_number,
        batches=tuple(remaining),
        last_taken=ledger.last_taken,
        columns=ledger.columns,
        forgotten=segment.forgotten | fingerprints,
        forgotten_batch=forgotten_batch,
    )


def lost_files(
    older: Iterable[Batch], segment: LedgerSegment, *, landed_paths: Collection[str]
) -> list[str]:
    """Files of `older` batches that are missing in the segment that replaces these batches.

    Files that were set aside and are no longer in the landing area do not count.
    """
    seen = segment.ledger.seen
    lost = list[str]()
    for batch in older:
        for path in _paths(batch):
            is_known = path in seen or fingerprint(path) in segment.forgotten
            if not is_known and (path in landed_paths or path in _taken(batch)):
                lost.append(path)
    return sorted(lost)


def _entry_set_aside(aside: SetAside, previous: KnownFile | None, *, was_loaded: bool) -> KnownFile:
    """The ledger's new entry for a file that is set aside; `previous` is its previous entry.

    `was_loaded`: there is no previous entry, but a file of this name was loaded and then forgotten.
    """
    present = KnownFile(
        size_bytes=aside.size_bytes,
        modified_ms=aside.modified_ms,
        digest=aside.digest,
        etag=aside.etag,
    )
    is_taken = was_loaded if previous is None else previous.is_taken
    if not is_taken:
        return replace(present, is_taken=False, is_foreign=aside.why.startswith(FOREIGN))
    # The content of a forgotten file is unknown, so it has no digest; the present size stands in.
    loaded = KnownFile(size_bytes=aside.size_bytes) if previous is None else previous.as_loaded
    has_loaded_content = bool(aside.digest) and aside.digest == loaded.digest
    return present if has_loaded_content else replace(present, loaded=loaded)


def _taken(batch: Batch) -> set[str]:
    """The paths of the files that the batch loads."""
    return {f"{batch.prefix}{file.name}" for file in batch.files}


def _paths(batch: Batch) -> set[str]:
    """The paths of the files that the batch loads or sets aside."""
    return _taken(batch) | {f"{batch.prefix}{aside.name}" for aside in batch.set_aside}


def _without(batch: Batch, paths: Collection[str]) -> Batch:
    """The batch without the files with these paths."""
    prefix = batch.prefix
    files = tuple(file for file in batch.files if f"{prefix}{file.name}" not in paths)
    aside = tuple(each for each in batch.set_aside if f"{prefix}{each.name}" not in paths)
    return replace(batch, files=files, set_aside=aside)
