"""The ledger of a table's landed batches: `_lakehouse/ingest/<layer>/<name>/`.

- Manifests: `<number>.json`, numbered from 1 without a gap. A manifest is written once, with one
  exception: until its batch is loaded, the newest manifest may be replaced with one that has fewer
  files, because the rows of some of them cannot be written.
- Segments: `segment-<number>.json`, each with the batches up to its number.

The ledger is the newest segment and the manifests after it. Both are JSON: a manifest has the
fields of a `Batch`, and a segment the fields of a `LedgerSegment`, with all its fingerprints as one
Base64 text.

Manifests are folded into the next segment in three steps:

1. The newest segment and the manifests after it are merged into one segment, which gets the newest
   manifest's number. The segment is written unless an object with its name exists.
2. The new segment is read back.
3. The manifests in the new segment, and older segments, are deleted.

**Safety properties**
- If a process is killed after any step of a fold, the ledger still contains the same files, and the
  next fold deletes the leftovers (`test_folding.py`).
- Manifests and older segments are deleted only if the new segment, read back, is what was written,
  and contains every file in them or, for a forgotten file, its fingerprint. Files that were set
  aside and are no longer in the landing area are excepted (`test_folding.py`).
- Only the newest manifest is replaced, while it is not folded. The new one sets the only file
  aside, or leaves files to later batches (`test_ledger.py`).
- A gap in the numbers, or an unreadable object, raises an error and never leads to an empty ledger
  (`test_ledger.py`).

The table's own log records which of the batches were loaded. A person can record it there, too.

- The load stops if the table's log does not show which batches were loaded. This is never guessed
  (`test_ledger.py`).
- After a write, the load stops if the log lacks the batch's number, or shows another row count than
  the batch has. (Rows of change data are merged, so they are not compared.)
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.text import count_of
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import TRANSACTION_RETENTION, Table
from lakehouse.delta.commits import Commit, ingest_app_id
from lakehouse.delta.log import TableFacts
from lakehouse.delta.protocol import unknown_features
from lakehouse.delta.snapshot import Snapshot
from lakehouse.evolve.plan.changes import NEW_KEY
from lakehouse.lake.commits import (
    commit_after_newest,
    commit_info,
    transaction_action,
)
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.land.plan.batches import (
    FINGERPRINT_BYTES,
    Batch,
    LandedFile,
    Ledger,
    LedgerSegment,
    SetAside,
    extend_ledger,
    find_unfinished,
    fold_batches,
    lost_files,
)
from lakehouse.spark import frames
from lakehouse.spark.errors import translated
from lakehouse.spark.frames import FrameWrite, Transaction, table_at
from lakehouse.store import Store

_NAME = re.compile(r"(segment-)?(\d{20})\.json")
# A load folds the manifests when there are this many. So reading a ledger takes at most about this
# many requests, and the segment is rewritten once per this many batches.
FOLD_EVERY = 32
Record = TypeVar("Record", Batch, LedgerSegment)


def landed_files(store: Store, landing: Landing) -> list[LandedFile]:
    """Every file below a landing's prefix, sorted by name."""
    return [
        LandedFile(
            name=file.name.removeprefix(landing.prefix),
            size_bytes=file.size_bytes,
            modified_ms=file.modified_ms,
            etag=file.etag,
        )
        for file in store.list(landing.prefix)
    ]


class _Listing(NamedTuple):
    """The numbers of the listed segments and manifests.

    `segment` is the number of the newest segment, and `newest` is the number of the newest batch.
    Without segments or batches, the number is 0.
    """

    segments: Sequence[int] = ()
    manifests: Sequence[int] = ()
    segment: int = 0
    newest: int = 0


class PlannedBatches:
    """The planned batches of one table, whose landed files are below `prefix`.

    Manifests are read once and kept in memory.

    Raises:
        Broken: a manifest is missing or damaged. Each method that reads manifests may raise this.
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
        """The ledger of all batches, whether or not they were loaded."""
        # Another process may fold the listed objects before they are read. If so, list them again.
        with suppress(FileNotFoundError):
            return self._read_ledger()
        try:
            return self._read_ledger()
        except FileNotFoundError as error:
            raise self._missing_manifest(error) from error

    def batch(self, number: int) -> Batch:
        """The batch that was planned with this number, so that it can be repeated.

        Raises:
            Broken: the batch is folded, and loaded files of it or of a later batch are forgotten.
        """
        try:
            return self._read_manifests([number])[0]
        except FileNotFoundError as error:
            segment = self._read_segment(self._list().segment)
            if number > segment.number:
                raise self._missing_manifest(error) from error
        if number <= segment.forgotten_batch:
            raise Broken(
                f"load of {self._table}: batch {number} is not in the table, and loaded files of "
                f"the batches up to {segment.forgotten_batch} are gone from {self._prefix} and "
                "forgotten. Either restore the table from a copy, or declare it under a new key: "
                "this loads all files that are in the landing area now"
            )
        for batch in segment.batches:
            if batch.number == number:
                return batch
        return Batch(number=number, files=())  # a segment omits batches without files

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
        if batch.number <= newest or not self._store.put_if_absent(name, encode_record(batch)):
            raise Transient(
                f"{subject} was planned by another process in the meantime ({name}). Use the same "
                "command again"
            )
        self._manifests[batch.number] = batch

    def replace(self, batch: Batch) -> None:
        """Rewrites the manifest of the newest batch, which was not loaded.

        The batch has fewer files, or the same files and more columns. Files that are not named any
        more wait for later batches. The caller holds the table's lock.

        Raises:
            Broken: the manifest is folded or not the newest.
        """
        listing = self._list()
        is_newest = batch.number == listing.newest > listing.segment
        if not is_newest:
            raise Broken(
                f"ingest of {self._table}: batch {batch.number} was to be planned with fewer "
                "files, but it is not the newest, or is folded into segment "
                f"{listing.segment}. Change the declaration, or the table's constraints, so that "
                "all rows of the batch can be written"
            )
        self._store.put(self._name(batch.number), encode_record(batch))
        self._manifests[batch.number] = batch

    def fold(self, *, landed_paths: Collection[str], last_loaded_batch: int, now_ms: int) -> None:
        """Folds the manifests into a segment if the last listing found `FOLD_EVERY` or more.

        The caller must hold the table's lock since before that listing. `landed_paths` are the
        paths of all files below the prefix.

        Raises:
            Broken: the segment, read back, is not what was written, or lacks a file. Nothing was
                deleted.
        """
        listing = self._listing
        if len(listing.manifests) < FOLD_EVERY:
            return
        segment = self._read_segment(listing.segment)
        newest = listing.newest
        newer = range(segment.number + 1, newest + 1)
        old_segments = [number for number in listing.segments if number < newest]
        older = [batch for number in old_segments for batch in self._read_segment(number).batches]
        older += self._read_manifests(listing.manifests)
        name = self._name(newest, "segment-")
        data = None
        if newer:
            new_segment = fold_batches(
                segment,
                self._read_manifests(newer),
                landed_paths=landed_paths,
                prefix=self._prefix,
                last_loaded_batch=last_loaded_batch,
                now_ms=now_ms,
            )
            data = encode_record(new_segment)
            self._store.put_if_absent(name, data)
        read_back = self._store.read(name)
        if data is not None and read_back != data:
            raise Broken(f"journal: {name} is not what was written; nothing was deleted")
        self._segment = _decoded(read_back, name, newest, _segment)
        lost = lost_files(older, self._segment, landed_paths=landed_paths)
        if lost:
            raise Broken(
                f"journal: {name} lacks {count_of(len(lost), 'file')}, for example {lost[0]!r}; "
                "nothing was deleted"
            )
        segment_names = [self._name(number, "segment-") for number in old_segments]
        self._store.delete([*segment_names, *map(self._name, listing.manifests)])

    def _read_ledger(self) -> Ledger:
        listing = self._list()
        segment = self._read_segment(listing.segment)
        newer = self._read_manifests(range(segment.number + 1, listing.newest + 1))
        return replace(extend_ledger(segment.ledger, newer), table=self._table)

    def _list(self) -> _Listing:
        segments = list[int]()
        manifests = list[int]()
        for file in self._store.list(self._folder):
            match = _NAME.fullmatch(file.name.removeprefix(f"{self._folder}/"))
            if match is not None:
                numbers = segments if match[1] else manifests
                numbers.append(int(match[2]))
        self._listing = _Listing(
            sorted(segments),
            sorted(manifests),
            max(segments, default=0),
            max((*segments, *manifests), default=0),
        )
        return self._listing

    def _read_segment(self, number: int) -> LedgerSegment:
        if number != self._segment.number:
            segment = LedgerSegment()
            if number:
                name = self._name(number, "segment-")
                segment = _decoded(self._store.read(name), name, number, _segment)
            self._segment = segment
        return self._segment

    def _read_manifests(self, numbers: Iterable[int]) -> list[Batch]:
        all_numbers = [*numbers]
        unread = [number for number in all_numbers if number not in self._manifests]
        contents = self._store.read_many([*map(self._name, unread)])
        for number, data in zip(unread, contents, strict=True):
            self._manifests[number] = _decoded(data, self._name(number), number, _batch)
        return [self._manifests[number] for number in all_numbers]

    def _missing_manifest(self, error: FileNotFoundError) -> Broken:
        return Broken(
            f"journal: a manifest of {self._table} is missing ({error}). Copy it back from a "
            "backup of the lake"
        )

    def _name(self, number: int, kind: str = "") -> str:
        return f"{self._folder}/{kind}{number:020}.json"


def planned_batches(lake: Lake, table: Table) -> PlannedBatches:
    """The planned batches of a table in its lake."""
    return PlannedBatches(lake.store, table.key, prefix=table.landing.prefix)


# Fields of a `LandedFile` that are set for few files. A document omits them if they are not set.
_RARE = ("by_spark", "blocks")


def encode_record(record: Batch | LedgerSegment) -> bytes:
    """The fields of a record as JSON: the content of a batch's manifest, or of a segment."""

    def fields_of(items: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: value for name, value in items if value or name not in _RARE}

    def joined(fingerprints: frozenset[bytes]) -> str:
        return b64encode(b"".join(sorted(fingerprints))).decode()

    document = asdict(record, dict_factory=fields_of)
    return json.dumps(document, separators=(",", ":"), default=joined).encode()


def _decoded(
    data: bytes, name: str, number: int, build: Callable[[dict[str, Any]], Record]
) -> Record:
    """The record in an object's content.

    Raises:
        Broken: the object is damaged, or its record has another number.
    """
    try:
        record = build(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Broken(
            f"journal: {name} cannot be read ({type(error).__name__}: {error}); "
            "restore it from a copy of the lake"
        ) from error
    if record.number != number:
        raise Broken(
            f"journal: {name} holds batch {record.number} instead of {number}. Restore it from a "
            "copy of the lake"
        )
    return record


def _batch(content: dict[str, Any]) -> Batch:
    simple = ("number", "prefix", "part_count", "record_count", "shape")
    files = [
        LandedFile(**{**file, "blocks": tuple(map(tuple, file.get("blocks", ())))})
        for file in content["files"]
    ]
    return Batch(
        **{name: content[name] for name in simple},
        files=tuple(files),
        set_aside=tuple(SetAside(**aside) for aside in content["set_aside"]),
        columns=tuple(content["columns"]),
    )


def _segment(content: dict[str, Any]) -> LedgerSegment:
    fingerprints = b64decode(content["forgotten"], validate=True)
    starts = range(0, len(fingerprints), FINGERPRINT_BYTES)
    values = {
        **content,
        "batches": tuple(map(_batch, content["batches"])),
        "forgotten": frozenset(fingerprints[start : start + FINGERPRINT_BYTES] for start in starts),
        "columns": tuple(content["columns"]),
    }
    return LedgerSegment(**values)


def last_loaded(table: Table, facts: TableFacts | None, ledger: Ledger) -> int:
    """The number of the last batch that the table's log records; 0 without a table or a batch.

    Raises:
        Broken: the log records no batch, although the table has files or a batch with files was
            planned; or the log records a newer batch than the newest manifest.
        Refused: a property of the table lets Delta forget batches.
    """
    if facts is None:
        return 0
    newest = ledger.newest_number
    retention = facts.snapshot.properties.get(TRANSACTION_RETENTION)
    if retention:
        raise Refused(
            f"load of {table.key}: with table property {TRANSACTION_RETENTION} = {retention!r}, "
            "Delta forgets which batches were loaded. Use ALTER TABLE … UNSET TBLPROPERTIES "
            f"('{TRANSACTION_RETENTION}')"
        )
    loaded = facts.snapshot.transactions.get(ingest_app_id(table.key))
    if loaded is None and not ledger.last_taken and facts.snapshot.file_count:
        raise Broken(
            f"load of {table.key}: the table has rows, but its log has no transaction id of a "
            "landed batch, and no manifest has files to load. If the table was renamed or copied: "
            "1. Rename its folders below _lakehouse/ingest and _lakehouse/deleted_keys to "
            f"{table.key}, too. 2. Use `lakehouse landing {table.key} --arrived N`, where N is the "
            "last batch whose rows the table has. If the table has no row of the files in "
            f"{table.landing.prefix}, use --arrived 0"
        )
    if loaded is None and ledger.last_taken:
        raise Broken(
            f"load of {table.key}: the table's log has no transaction id of a landed batch, but "
            f"batches up to {newest} were planned, so the table was replaced by another one. Use "
            f"`lakehouse landing {table.key} --arrived N`, where N is the last batch whose rows "
            "the table has (0 if it has no row of these batches)"
        )
    if loaded is not None and loaded > newest:
        raise Broken(
            f"load of {table.key}: batch {loaded} is in the table, but the newest manifest below "
            f"_lakehouse/ingest/{table.key} is {newest}, so the loaded files are unknown. Either "
            f"restore the manifests from a copy of the lake, or {NEW_KEY}"
        )
    return loaded or 0


def unfinished_batch(
    lake: Lake, table: Table, loaded: int, ledger: Ledger, batches: PlannedBatches
) -> Batch | None:
    """The planned batch to repeat, because its rows or quarantine entries are missing, or `None`.

    `loaded` is the number of the last batch in the table's log.
    """
    unfinished = find_unfinished(ledger, table.write, last_loaded_batch=loaded, read=batches.batch)
    newest = ledger.newest
    # A batch without files writes only quarantine entries, which the table's log does not show.
    if unfinished is None and newest is not None and not newest.files and newest.quarantined:
        return None if quarantine_has_files(lake, table.key, newest) else newest
    return unfinished


def last_in_log(table_key: str, facts: TableFacts | None) -> int:
    """The number of the last batch in a table's log, or 0. Unlike `last_loaded`, checks nothing."""
    return 0 if facts is None else facts.snapshot.transactions.get(ingest_app_id(table_key), 0)


def batch_commits(
    lake: Lake, table_key: str, *, before: TableFacts | None, after: TableFacts
) -> list[Commit]:
    """The commits that wrote batches after the version of `before`, up to `after`, oldest first."""
    version = -1 if before is None else before.snapshot.version
    commits = lake.history_since(after, version).commits
    return [commit for commit in commits if ingest_app_id(table_key) in commit.applications]


def check_loaded(
    lake: Lake,
    key: str,
    number: int,
    row_count: int | None,
    *,
    before: TableFacts | None,
    after: TableFacts | None,
) -> None:
    """Raises `Broken` unless a table's log shows the batch of this number, written since `before`.

    Its row count (`None` for change data) is compared, too, if a commit since `before` records one.
    """
    loaded = last_in_log(key, after)
    if after is None or loaded < number:
        raise Broken(
            f"load of {key}: batch {number} was written, but the last batch in the table's "
            f"log is {loaded}. The load stops, since it would write the batch again and again. "
            f"Look at {key}/_delta_log"
        )
    for commit in batch_commits(lake, key, before=before, after=after):
        is_this_batch = commit.applications[ingest_app_id(key)] == number
        written = commit.metrics.get("numOutputRows")
        if row_count is None or written is None or not is_this_batch or int(written) == row_count:
            continue
        raise Broken(
            f"load of {key}: batch {number} has {count_of(row_count, 'row')}, but version "
            f"{commit.version} of the table records {count_of(int(written), 'written row')}. "
            "Compare that version with the batch's files"
        )


def end_earlier_writes(lake: Lake, table_key: str, number: int) -> TableFacts | None:
    """Makes each statement fail that began earlier and still writes batch `number`.

    The client of such a statement may be dead, or may have lost its connection. If the statement
    ended later, the table would have rows of a batch that is read in another way by then. It
    conflicts with a commit without rows that records the last batch again. Such a commit is not
    made to a table with a feature for which it would be incomplete.
    Source: Delta 4.4.0, ConflictChecker, appLevelTransactions

    Returns the table's facts; `None` if it does not exist.

    Raises:
        Transient: another process has loaded the batch.
    """
    app_id = ingest_app_id(table_key)
    facts = lake.facts(table_key)
    if facts is None or app_id not in facts.snapshot.transactions:
        return facts
    snapshot = facts.snapshot
    if unknown_features(snapshot.features) or "inCommitTimestamp" in snapshot.features:
        return facts

    def check(newest: Snapshot) -> None:
        if newest.transactions.get(app_id, 0) >= number:
            raise Transient(
                f"load of {table_key}: another process has loaded batch {number} meanwhile. Use the"
                " same command again"
            )

    check(snapshot)
    info = commit_info("WRITE", snapshot.version, {"repeats": number, "mark": uuid4().hex})
    actions = [info, transaction_action(app_id, snapshot.transactions[app_id])]
    commit_after_newest(lake, snapshot, actions, check)
    return lake.facts(table_key)


def record_loaded(session: TableSession, number: int) -> None:
    """Records in the table's log that the table has the rows of all batches up to `number`.

    The caller must be sure of this, because it is not checked. The commit adds no rows.

    Raises:
        Refused: there is no table, its log already shows a batch, or `number` is not between 0 and
            the number of the newest planned batch.
    """
    lake = session.lake
    spark = session.spark
    table = session.table
    owner = f"arrival of batch {number} in {table.key}"
    with translated(), hold(lake, spark, table.key, owner=owner):
        facts = lake.existing_facts(table.key, "landing:")
        ledger = planned_batches(lake, table).ledger()
        newest = ledger.newest_number
        app_id = ingest_app_id(table.key)
        recorded_batch = facts.snapshot.transactions.get(app_id)
        if recorded_batch is not None:
            raise Refused(
                f"landing {table.key}: the log already records batch {recorded_batch} as the "
                "last one loaded. Nothing to do"
            )
        if not 0 <= number <= newest:
            raise Refused(
                f"landing {table.key}: --arrived is {number}. Use 0 to {newest}, the numbers of "
                "the planned batches"
            )
        transaction = Transaction(app_id=app_id, version=number)
        no_rows = table_at(spark, facts.snapshot).limit(0)
        write = FrameWrite(mode="append", transaction=transaction)
        frames.write_frame(no_rows, facts.snapshot.uri, write)


def quarantine_key(table_key: str) -> str:
    """The key of a table's quarantine."""
    return f"quarantine/{table_key}"


def quarantine_app_id(table_key: str) -> str:
    """The txnAppId under which a table's quarantine records batches."""
    return f"lakehouse/quarantine/{table_key}"


def quarantine_has_files(lake: Lake, table_key: str, batch: Batch) -> bool:
    """Whether the quarantine records the files of a batch that loads no rows."""
    facts = lake.facts(quarantine_key(table_key))
    if facts is None:
        return False
    return files_transaction(table_key, batch).app_id in facts.snapshot.transactions


def quarantined_count(lake: Lake, table_key: str) -> int | None:
    """The number of entries in a table's quarantine; `None` if its log does not record it."""
    facts = lake.facts(quarantine_key(table_key))
    return 0 if facts is None else facts.snapshot.row_count


def files_transaction(table_key: str, batch: Batch) -> Transaction:
    """The transaction of a batch's quarantined files.

    It identifies the files themselves, since a new ledger gives the same number to other files.
    """
    files = [
        (file.name, file.size_bytes, file.modified_ms, file.digest) for file in batch.quarantined
    ]
    content = repr(files).encode("utf-8", "surrogateescape")
    mark = blake2b(content, digest_size=8).hexdigest()
    return Transaction(app_id=f"{quarantine_app_id(table_key)}/{batch.number}-{mark}", version=1)
