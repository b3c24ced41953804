"""The ledger of a table's landed batches: `_lakehouse/ingest/<layer>/<name>/`.

- Manifests: `<number>.json`, numbered from 1 without a gap. A manifest is written once, with one
  exception: as long as its batch has not arrived in the table, it may be replaced with a manifest
  in which some of the batch's files are set aside.
- Segments: `segment-<number>.json`, each with the batches up to its number.

The ledger is the newest segment and the manifests after it.

Manifests are folded into the next segment in three steps:

1. The newest segment and the manifests after it are merged into one segment, which gets the newest
   manifest's number. It is written unless an object with its name exists.
2. The new segment is read back.
3. The manifests in the new segment, and older segments, are deleted.

**Safety properties**
- A process may be killed after any step of a fold: the ledger still contains the same files. The
  next fold deletes the leftovers (`test_folding.py`).
- Manifests and older segments are deleted only if the new segment, read back, is what was written,
  and contains every file in them. Files that `core.ingest.ledger_segments` may forget are excepted
  (`test_folding.py`).
- A manifest is replaced only with a manifest that names the same files, and only while it is not
  folded (`test_planned_batches.py`).
- A gap in the numbers, or an unreadable object, raises an error and never leads to an empty ledger
  (`test_planned_batches.py`).
"""

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.errors import Broken, Transient
from lakehouse.core.ingest.batches import Batch, LandedFile, Ledger
from lakehouse.core.ingest.ledger_segments import (
    LedgerSegment,
    extend_ledger,
    fold_batches,
    lost_files,
)
from lakehouse.core.text import count_of
from lakehouse.engine.journal.batch_manifest import (
    decode_manifest,
    decode_segment,
    encode_manifest,
    encode_segment,
)
from lakehouse.engine.store import Store, StoredFile

_NAME = re.compile(r"(segment-)?(\d{20})\.json")
# A load folds the manifests when there are this many. So reading a ledger takes about this many
# requests, and its segment is rewritten once per this many batches.
FOLD_EVERY = 32


def landed_files(store: Store, landing: Landing) -> list[LandedFile]:
    """Every file below a landing's prefix, sorted by name."""
    return [landed_file(file, landing) for file in store.list(landing.prefix)]


def landed_file(file: StoredFile, landing: Landing) -> LandedFile:
    """A stored file as the ledger records it."""
    name = file.name.removeprefix(landing.prefix)
    return LandedFile(
        name=name, size_bytes=file.size_bytes, modified_ms=file.modified_ms, etag=file.etag
    )


class _Listing(NamedTuple):
    """The numbers of the listed segments and manifests.

    `segment` is the number of the newest segment, and `newest` that of the newest batch. Both are 0
    if there is none.
    """

    segments: Sequence[int] = ()
    manifests: Sequence[int] = ()
    segment: int = 0
    newest: int = 0


class PlannedBatches:
    """The planned batches of one table, whose landed files are below `prefix`.

    Manifests are read once and kept in memory.

    Raises:
        Broken: a manifest is missing or damaged; raised by every method that reads manifests.
    """

    def __init__(self, store: Store, table_key: str, *, prefix: str) -> None:
        self._store = store
        self._table = table_key
        self._prefix = prefix
        self._folder = f"_lakehouse/ingest/{table_key}"
        self._manifests = dict[int, Batch]()
        self._segment = LedgerSegment()
        self._listing = _Listing()

    def ledger(self) -> Ledger:
        """The ledger of all batches, whether or not they arrived in the table."""
        with suppress(FileNotFoundError):  # another process may have folded the listed objects
            return self._read_ledger()
        try:
            return self._read_ledger()
        except FileNotFoundError as error:
            raise self._is_gone(error) from error

    def known(self) -> list[Batch]:
        """All recorded batches in ascending order, except those whose files are all forgotten."""
        listing = self._list()
        newer = [number for number in listing.manifests if number > listing.segment]
        try:
            batches = self._read_manifests(newer)
        except FileNotFoundError as error:
            raise self._is_gone(error) from error
        return [*self._read_segment(listing.segment).batches, *batches]

    def batch(self, number: int) -> Batch:
        """The batch that was planned with this number, so that it can be repeated.

        Raises:
            Broken: files of this batch, or of a later one, are forgotten.
        """
        try:
            return self._read_manifests([number])[0]
        except FileNotFoundError as error:
            segment = self._read_segment(self._list().segment)
            if number > segment.number:
                raise self._is_gone(error) from error
        if number <= segment.forgotten_batch:
            raise Broken(
                f"load of {self._table}: batch {number} is not in the table, and loaded files of "
                f"the batches up to {segment.forgotten_batch} are gone from {self._prefix} and "
                "forgotten. Either restore the table from a copy, or declare it under a new key: "
                "this loads all files that are in the landing area now"
            )
        return next(
            (batch for batch in segment.batches if batch.number == number),
            Batch(number=number, files=()),
        )

    def plan(self, batch: Batch) -> None:
        """Writes a batch's manifest, before its rows are written.

        Raises:
            Transient: another process planned a batch after the ledger was read.
            Broken: the batch's number leaves a gap.
        """
        newest = self._list().newest
        subject = f"ingest of {self._table}: batch {batch.number}"
        if batch.number > newest + 1:
            raise Broken(
                f"{subject} was to be planned, but the newest manifest is {newest}: the manifests "
                f"between them are missing. Copy them back to {self._folder}/ from a backup of the "
                "lake"
            )
        name = self._name(batch.number)
        if batch.number <= newest or not self._store.put_if_absent(name, encode_manifest(batch)):
            raise Transient(
                f"{subject} was planned by another process in the meantime ({name}). Use the same "
                "command again"
            )
        self._manifests[batch.number] = batch

    def replace(self, batch: Batch) -> None:
        """Rewrites the manifest of a batch that did not arrive, with fewer files.

        The caller holds the table's lock.

        Raises:
            Broken: the manifest is folded; or the batch names other files than before; or it has no
                files, although newer batches exist, so that it would be skipped.
        """
        listing = self._list()
        subject = f"ingest of {self._table}: batch {batch.number} was to be planned"
        if batch.number not in listing.manifests or batch.number <= listing.segment:
            raise Broken(
                f"{subject} with fewer files, but its manifest is folded into segment "
                f"{listing.segment}. Change the declaration, or the table's constraints, so that "
                "all rows of the batch can be written"
            )
        before = self._read_manifests([batch.number])[0]
        names = {file.name for file in batch.files}
        names_before = {file.name for file in before.files}
        isolated = {name for group in batch.isolated for name in group}
        set_aside = {each.name for each in batch.quarantined}
        is_skipped = not names and batch.number != listing.newest
        is_explained = names_before - names <= isolated & set_aside
        if is_skipped or not names < names_before or not is_explained:
            files = f"{len(names)} of its {count_of(len(names_before), 'file')}"
            raise Broken(
                f"{subject} again with {files}, and {len(isolated)} set aside. The manifest was "
                "not changed"
            )
        self._store.put(self._name(batch.number), encode_manifest(batch))
        self._manifests[batch.number] = batch

    def fold(self, *, lying: Collection[str], arrived: int, now_ms: int) -> None:
        """Folds the manifests into a segment if the last listing found `FOLD_EVERY` or more.

        The caller must hold the table's lock from before that listing. `lying` are the paths of all
        files below the prefix, and `arrived` is the number of the last batch in the table.

        Raises:
            Broken: the segment, read back, is not what was written, or lacks a file. Nothing was
                deleted.
        """
        listing = self._listing
        if len(listing.manifests) < FOLD_EVERY:
            return
        before = self._read_segment(listing.segment)
        newest = listing.newest
        newer = range(before.number + 1, newest + 1)
        folded = [number for number in listing.segments if number < newest]
        older = [batch for number in folded for batch in self._read_segment(number).batches]
        older += self._read_manifests(listing.manifests)
        name = self._name(newest, "segment-")
        data = None
        if newer:
            segment = fold_batches(
                before,
                self._read_manifests(newer),
                lying=lying,
                prefix=self._prefix,
                arrived=arrived,
                now_ms=now_ms,
            )
            data = encode_segment(segment)
            self._store.put_if_absent(name, data)
        read_back = self._store.read(name)
        if data is not None and read_back != data:
            raise Broken(f"journal: {name} is not what was written; nothing was deleted")
        self._segment = decode_segment(read_back, name, number=newest)
        if lost := lost_files(older, self._segment, lying=lying):
            raise Broken(
                f"journal: {name} lacks {count_of(len(lost), 'file')}, for example {lost[0]!r}; "
                "nothing was deleted"
            )
        segments = [self._name(number, "segment-") for number in folded]
        self._store.delete([*segments, *map(self._name, listing.manifests)])

    def _read_ledger(self) -> Ledger:
        listing = self._list()
        segment = self._read_segment(listing.segment)
        newer = self._read_manifests(range(segment.number + 1, listing.newest + 1))
        return replace(extend_ledger(segment.ledger, newer), table=self._table)

    def _list(self) -> _Listing:
        names = (
            file.name.removeprefix(f"{self._folder}/") for file in self._store.list(self._folder)
        )
        numbers = [
            (bool(match[1]), int(match[2])) for name in names if (match := _NAME.fullmatch(name))
        ]
        segments = sorted(number for is_segment, number in numbers if is_segment)
        manifests = sorted(number for is_segment, number in numbers if not is_segment)
        self._listing = _Listing(
            segments,
            manifests,
            max(segments, default=0),
            max((*segments, *manifests), default=0),
        )
        return self._listing

    def _read_segment(self, number: int) -> LedgerSegment:
        if number != self._segment.number:
            name = self._name(number, "segment-")
            self._segment = (
                decode_segment(self._store.read(name), name, number=number)
                if number
                else LedgerSegment()
            )
        return self._segment

    def _read_manifests(self, numbers: Iterable[int]) -> list[Batch]:
        wanted = [*numbers]
        unread = [number for number in wanted if number not in self._manifests]
        contents = self._store.read_many([*map(self._name, unread)])
        for number, data in zip(unread, contents, strict=True):
            self._manifests[number] = decode_manifest(data, self._name(number), number=number)
        return [self._manifests[number] for number in wanted]

    def _is_gone(self, error: FileNotFoundError) -> Broken:
        return Broken(
            f"journal: a manifest of {self._table} is missing ({error}). Copy it back from a "
            "backup of the lake"
        )

    def _name(self, number: int, kind: str = "") -> str:
        return f"{self._folder}/{kind}{number:020}.json"
