"""The ledger of a table's landed batches: `_lakehouse/ingest/<layer>/<name>/`.

Manifests: `<number>.json`, numbered from 1 without a gap, each written once; one of a batch that did not arrive may be replaced by one of
the same batch with fewer files, the others set aside. Segments: `segment-<number>.json`, each with the batches up to its number. The ledger
is the newest segment and the manifests after it.

Manifests are folded into the next segment so:

1. What the newest segment and the manifests after it hold is written as one object under the newest number, if that is absent.
2. The object is read back.
3. The manifests that it holds, and older segments, are deleted.

**Safety properties**
- A fold that dies after any step leaves a ledger that knows the same files. The next fold deletes
  the leftovers (`test_folding.py`).
- Objects are deleted only if the segment, read back, is what was written, and knows every file that
  they name; `core.ingest.ledger_segments` says which of them may be forgotten (`test_folding.py`).
- A manifest is replaced only by one that names the same files, and only while it is not folded
  (`test_landed_batches.py`).
- A gap in the numbers, or an unreadable object, is an error and never an empty ledger
  (`test_landed_batches.py`).
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
from lakehouse.engine.journal.batch_manifest import (
    SNAPSHOT_EVERY,
    decode_manifest,
    decode_segment,
    encode_manifest,
    encode_segment,
)
from lakehouse.engine.store import Store, StoredFile

_NAME = re.compile(r"(segment-)?(\d{20})\.json")
# A ledger costs at most so many reads more than one, and its segment is written anew once in so many batches.
FOLD_EVERY = 32


def landed_files(store: Store, landing: Landing) -> list[LandedFile]:
    """Every file below a landing's prefix, sorted by name."""
    return [landed_file(file, landing) for file in store.list(landing.prefix)]


def landed_file(file: StoredFile, landing: Landing) -> LandedFile:
    """A file of the store as the ledger knows it."""
    name = file.name.removeprefix(landing.prefix)
    return LandedFile(
        name=name, size_bytes=file.size_bytes, modified_ms=file.modified_ms, etag=file.etag
    )


class _Listing(NamedTuple):
    """The segments and manifests that are there, by number, the newest segment and the newest batch; 0 if there is none."""

    segments: Sequence[int] = ()
    manifests: Sequence[int] = ()
    segment: int = 0
    newest: int = 0


class LandedBatches:
    """The batches of one table; manifests of an older program mean files below `prefix`. What was read once is not read again.

    Raises:
        Broken: from any method that reads a manifest: it is missing or damaged.
    """

    def __init__(self, store: Store, table_key: str, *, prefix: str) -> None:
        self._store, self._table, self._prefix = store, table_key, prefix
        self._folder = f"_lakehouse/ingest/{table_key}"
        self._manifests: dict[int, tuple[Batch, Ledger | None]] = {}
        self._segment = LedgerSegment()
        self._listing = _Listing()

    def ledger(self) -> Ledger:
        """The batches that were planned for the table, whether or not they arrived in it."""
        with suppress(FileNotFoundError):  # another process may have folded what was listed
            return self._read_ledger()
        try:
            return self._read_ledger()
        except FileNotFoundError as error:
            raise self._is_gone(error) from error

    def known(self) -> list[Batch]:
        """The batches of which anything is known, by their numbers; what is forgotten of older ones is not among them."""
        listing = self._list()
        try:
            newer = self._read_manifests(
                number for number in listing.manifests if number > listing.segment
            )
        except FileNotFoundError as error:
            raise self._is_gone(error) from error
        return [*self._read_segment(listing.segment).batches, *(batch for batch, _ in newer)]

    def batch(self, number: int) -> Batch:
        """The batch that was planned under a number, to be done again.

        Raises:
            Broken: files of it, or of a batch after it, are forgotten.
        """
        try:
            return self._read_manifests([number])[0][0]
        except FileNotFoundError as error:
            segment = self._read_segment(self._list().segment)
            if number > segment.number:
                raise self._is_gone(error) from error
        if number <= segment.forgotten_batch:
            raise Broken(
                f"load of {self._table}: batch {number} is not in the table, and loaded files of the batches up to "
                f"{segment.forgotten_batch} are gone from {self._prefix} and forgotten; accepted: put the table back from a copy; or "
                f"delete {self._folder}, then what lies in the landing area now is loaded into a new table"
            )
        return next(
            (batch for batch in segment.batches if batch.number == number),
            Batch(number=number, files=()),
        )

    def plan(self, batch: Batch) -> None:
        """Write a batch's manifest, before its rows are written.

        Raises:
            Transient: another process planned a batch since the ledger was read.
            Broken: the batch's number leaves a gap.
        """
        newest, asked = self._list().newest, f"ingest of {self._table}: batch {batch.number}"
        if batch.number > newest + 1:
            raise Broken(
                f"{asked} was to be planned, but the newest manifest is {newest}: manifests are lost"
            )
        name = self._name(batch.number)
        if batch.number <= newest or not self._store.put_if_absent(name, encode_manifest(batch)):
            raise Transient(f"{asked} was planned by another process meanwhile ({name}); try again")
        self._manifests[batch.number] = batch, None

    def replace(self, batch: Batch) -> None:
        """Write the manifest of a batch anew, with fewer files; it did not arrive, and the caller holds the table's guard.

        Raises:
            Broken: the one that is there is folded, carries what an older program knew, or names other files, or the batch would have no
                file and others follow it, so that it would not be done again; the manifest stays.
        """
        listing, asked = (
            self._list(),
            f"ingest of {self._table}: batch {batch.number} was to be planned",
        )
        if batch.number not in listing.manifests or batch.number <= listing.segment:
            raise Broken(
                f"{asked} with fewer files, but its manifest is folded into segment {listing.segment}; accepted: a declaration, or "
                "constraints of the table, by which all of its rows can be written"
            )
        before, carried = self._read_manifests([batch.number])[0]
        named, files = ({file.name for file in each.files} for each in (batch, before))
        taken_out, aside = (
            {name for names in batch.isolated for name in names},
            {each.name for each in batch.quarantined},
        )
        is_passed_over = not named and batch.number != listing.newest
        if (
            carried is not None
            or is_passed_over
            or not named < files
            or not files - named <= taken_out & aside
        ):
            what = f"{len(named)} of its {len(files)} file(s) and {len(taken_out)} taken out"
            raise Broken(f"{asked} anew with {what}; its manifest stays as it is")
        self._store.put(self._name(batch.number), encode_manifest(batch))
        self._manifests[batch.number] = batch, None

    def fold(self, *, lying: Collection[str], arrived: int, now_ms: int) -> None:
        """Fold the manifests into a segment, where the last listing found many; the caller holds the table's guard since before it.

        `lying` are the paths of all files below the prefix, `arrived` is the last batch that is in the table.

        Raises:
            Broken: what was written cannot be read back, or does not know every file; nothing is deleted then.
        """
        listing = self._listing
        if len(listing.manifests) < FOLD_EVERY:
            return
        before, newest = self._read_segment(listing.segment), listing.newest
        newer = range(before.number + 1, newest + 1)
        if not set(newer) <= {*listing.manifests}:
            return  # a gap that the snapshot of an older program bridges stays as it is
        folded = [number for number in listing.segments if number < newest]
        older = [batch for number in folded for batch in self._read_segment(number).batches]
        older += [batch for batch, _ in self._read_manifests(listing.manifests)]
        name, data = self._name(newest, "segment-"), None
        if newer:
            read = [batch for batch, _ in self._read_manifests(newer)]
            data = encode_segment(
                fold_batches(
                    before, read, lying=lying, prefix=self._prefix, arrived=arrived, now_ms=now_ms
                )
            )
            self._store.put_if_absent(name, data)
        read_back = self._store.read(name)
        if data is not None and read_back != data:
            raise Broken(f"journal: {name} is not what was written; the manifests stay")
        self._segment = decode_segment(read_back, name, number=newest)
        if lost := lost_files(older, self._segment, lying=lying):
            raise Broken(
                f"journal: {name} does not know {len(lost)} file(s), first {lost[0]!r}; nothing is deleted"
            )
        self._store.delete(
            [
                *(self._name(number, "segment-") for number in folded),
                *map(self._name, listing.manifests),
            ]
        )

    def _read_ledger(self) -> Ledger:
        listing = self._list()
        segment = self._read_segment(listing.segment)
        first, ledger = segment.number + 1, segment.ledger
        if not segment.number and listing.newest >= SNAPSHOT_EVERY:
            snapshot = listing.newest - listing.newest % SNAPSHOT_EVERY
            carried = self._read_manifests([snapshot])[0][1]
            first, ledger = (1, ledger) if carried is None else (snapshot, carried)
        newer = self._read_manifests(range(first, listing.newest + 1))
        return replace(extend_ledger(ledger, (batch for batch, _ in newer)), table=self._table)

    def _list(self) -> _Listing:
        names = (
            file.name.removeprefix(f"{self._folder}/") for file in self._store.list(self._folder)
        )
        found = [
            (bool(match[1]), int(match[2])) for name in names if (match := _NAME.fullmatch(name))
        ]
        segments, manifests = (
            sorted(number for is_segment, number in found if is_segment is kind)
            for kind in (True, False)
        )
        self._listing = _Listing(
            segments, manifests, max(segments, default=0), max((*segments, *manifests), default=0)
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

    def _read_manifests(self, numbers: Iterable[int]) -> list[tuple[Batch, Ledger | None]]:
        wanted = [*numbers]
        unread = [number for number in wanted if number not in self._manifests]
        for number, data in zip(
            unread, self._store.read_many([*map(self._name, unread)]), strict=True
        ):
            self._manifests[number] = decode_manifest(
                data, self._name(number), number=number, prefix=self._prefix
            )
        return [self._manifests[number] for number in wanted]

    def _is_gone(self, error: FileNotFoundError) -> Broken:
        return Broken(
            f"journal: a manifest of {self._table} is gone ({error}); restore it from a copy of the lake"
        )

    def _name(self, number: int, kind: str = "") -> str:
        return f"{self._folder}/{kind}{number:020}.json"
