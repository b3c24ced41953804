"""Values for landed files, batches and their ledger, which forgets old files.

The ledger of a table is a sequence of batch manifests, numbered from 1. Each manifest is written
before the batch's rows. The table's own log records which batches were loaded. A loaded batch is
never repeated. Batches that were not loaded are repeated in order, with the files that their
manifests name; for an `Overwrite`, only the newest of them is repeated. If the table's folder was
deleted, no batch counts as loaded.

A segment holds the manifests of batch 1 to batch `number`. Newer batches have manifests of their
own. A file is forgotten when it is gone from the landing area and older than `FORGET_AFTER_MS`. If
the file was loaded, a fingerprint of its path is kept.

**Safety properties** (tests in `test_batches.py`, `test_folding.py`)
- A file in the landing area is never forgotten. If the area is empty, no file is forgotten, since
  the area may be unreachable.
- A batch that was not loaded, the newest batch, and the newest batch with files are kept whole.
- If a file lands under the name of a loaded and forgotten file, it is not loaded, except by an
  `Overwrite`. The fingerprint shows that the name was used, and a person should look at the file.
- If the table's folder was deleted, its batches are repeated. A batch up to `forgotten_batch` whose
  manifest was folded is then refused, because files of these batches are forgotten
  (`PlannedBatches.batch`).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from lakehouse.base.frozen import frozen
from lakehouse.base.text import DAY_MS, count_of, first_names
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Overwrite, WriteMode

# The length of the fingerprint that is kept of a forgotten path. The chance that a new path shares
# its fingerprint with one of ten million paths is one in 10^12.
FINGERPRINT_BYTES = 8
# In a manifest, the reason for setting a file of another format aside begins with these words.
FOREIGN = "its name ends in none of "
# A file that is gone from the landing area stays known for at least this long after its
# modification. If it was loaded and lands again, it is recognised by its content. Once the file is
# forgotten, any file of its name is set aside. Any value is safe, because fingerprints are kept.
FORGET_AFTER_MS = 30 * DAY_MS


@frozen
class LandedFile:
    """A file below the landing prefix; `name` is relative to the prefix.

    `digest` is empty until the file is read. `etag` is empty if the store has none.
    With `by_spark`, Spark reads the file itself, and `digest` is its store's checksum. `blocks` has
    then the counts of lines and of records in each block of a text, or the count of rows twice.
    """

    name: str
    size_bytes: int
    modified_ms: int
    digest: str = ""
    etag: str = ""
    by_spark: bool = False
    blocks: tuple[tuple[int, int], ...] = ()


@frozen
class SetAside(LandedFile):
    """A landed file that is not loaded, and why.

    With `is_quarantined`, the table lacks the file's rows, and a person should look at the file.
    """

    why: str
    is_quarantined: bool = False


@frozen
class Batch:
    """The files below `prefix` that one write loads, under one number.

    `record_count` records are staged in `part_count` files. `shape` is a digest of the declaration
    for which they were staged, with a random suffix. Before that staging, they are `None` or empty.
    The batch adds `columns` to the table.
    """

    number: int
    files: tuple[LandedFile, ...]
    set_aside: tuple[SetAside, ...] = ()
    prefix: str = ""
    part_count: int | None = None
    record_count: int | None = None
    columns: tuple[str, ...] = ()
    shape: str = ""

    @property
    def quarantined(self) -> tuple[SetAside, ...]:
        """The files that go to the quarantine table."""
        return tuple(aside for aside in self.set_aside if aside.is_quarantined)


@frozen
class KnownFile:
    """A file, as the newest manifest that names it describes it, and as it was `loaded`.

    The file of this name that a batch loads may have had other content. `loaded` is `None` if no
    batch loads rows of such a file: it was only set aside.
    """

    newest: LandedFile
    loaded: LandedFile | None

    @property
    def is_foreign(self) -> bool:
        """Whether the file was only set aside, because of the ending of its name."""
        newest = self.newest
        is_foreign = isinstance(newest, SetAside) and newest.why.startswith(FOREIGN)
        return is_foreign and self.loaded is None


@frozen
class KnownFiles:
    """The known files and columns of a table when a new batch is staged.

    `loaded` maps names to files as they were loaded. Earlier batches added `columns` to the table.
    `table_types` maps the table's columns to their types.
    """

    loaded: Mapping[str, LandedFile | None]
    columns: Sequence[str] = ()
    table_types: Mapping[str, str] = {}
    is_overwrite: bool = False

    def may_load(self, file: LandedFile) -> bool:
        """Whether the records of a file, as it was read, may be loaded.

        They must not if records were loaded under its name. An `Overwrite` loads other content.
        """
        loaded = self.loaded.get(file.name)
        return loaded is None or (self.is_overwrite and loaded.digest != file.digest)


@frozen
class Ledger:
    """What is known about the earlier batches of `table`, whether or not they were loaded.

    - `newest`: the newest batch; `None` if there is none.
    - `seen`: the files of all batches, by full path, without forgotten files (`LedgerSegment`).
    - `last_taken`: the greatest path, as a string, of a file that a batch loads; empty if none.
    - `forgotten`: the fingerprints of loaded files that are no longer in `seen`.
    - `columns`: the columns that batches added to the table, in this order.
    """

    newest: Batch | None
    seen: Mapping[str, KnownFile]
    table: str = ""
    last_taken: str = ""
    forgotten: frozenset[bytes] = frozenset()
    columns: tuple[str, ...] = ()

    @property
    def newest_number(self) -> int:
        """The number of the newest batch, or 0."""
        return 0 if self.newest is None else self.newest.number

    def loaded(self, path: str) -> LandedFile | None:
        """The file at this path as it was loaded; `None` if no known batch loads its rows."""
        known = self.seen.get(path)
        return None if known is None else known.loaded


def files_of_spark(batch: Batch) -> list[LandedFile]:
    """The files of a batch that Spark reads itself. The records of all others are staged."""
    return [file for file in batch.files if file.by_spark]


def fingerprint(path: str) -> bytes:
    """The hash that is kept of the path of a loaded file when the file is forgotten.

    A new file whose path has such a fingerprint is set aside, unless an `Overwrite` loads it.
    """
    return sha256(path.encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def without_files(batch: Batch, problems: Mapping[str, str], *, is_overwrite: bool) -> Batch:
    """The batch without the files that have problems, by name. They go to quarantine.

    An `Overwrite` omits the older files that its file superseded. So the next batch chooses again.
    """
    kept = batch.quarantined if is_overwrite else batch.set_aside
    files = tuple(file for file in batch.files if file.name not in problems)
    aside = tuple(
        set_aside(file, problems[file.name], is_quarantined=True)
        for file in batch.files
        if file.name in problems
    )
    columns = batch.columns if files else ()
    return replace(batch, files=files, set_aside=(*kept, *aside), columns=columns)


def set_aside(file: LandedFile, why: str, is_quarantined: bool) -> SetAside:
    """The record that the file is set aside, with the reason."""
    return SetAside(
        name=file.name,
        size_bytes=file.size_bytes,
        why=why,
        modified_ms=file.modified_ms,
        digest=file.digest,
        is_quarantined=is_quarantined,
        etag=file.etag,
    )


def quarantine_sentence(table_key: str, *, lines: int, files: int = 0) -> str:
    """`3 lines and 1 file in quarantine: lakehouse quarantine show bronze/orders`, or empty."""
    counts = [count_of(lines, "line")] if lines else []
    counts += [count_of(files, "file")] if files else []
    if not counts:
        return ""
    return f"{' and '.join(counts)} in quarantine: lakehouse quarantine show {table_key}"


def describe_set_aside(ledger: Ledger, landing: Landing) -> str | None:
    """How many files were set aside, and the first names; `None` if no file was.

    A file whose earlier content was loaded is not counted. Files that were set aside because of the
    ending of their name come first.
    """
    aside = {path: known for path, known in ledger.seen.items() if known.loaded is None}
    foreign = [path for path, known in aside.items() if known.is_foreign]
    others = [path for path, known in aside.items() if not known.is_foreign]
    groups = {
        f", since the name ends in none of {', '.join(landing.suffixes)}": foreign,
        " for other reasons": others,
    }
    sentences = [
        f"{count_of(len(paths), 'file')} set aside{why}: {first_names(paths)}"
        for why, paths in groups.items()
        if paths
    ]
    return "; ".join(sentences) or None


@frozen
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

    A file stays `loaded`, even if a later batch sets a changed file of the same name aside.
    """
    seen = dict(ledger.seen)
    newest = ledger.newest
    last_taken = ledger.last_taken
    columns = dict.fromkeys(ledger.columns)
    for batch in batches:
        for aside in batch.set_aside:
            path = f"{batch.prefix}{aside.name}"
            loaded: LandedFile | None = None
            if path in seen:
                loaded = seen[path].loaded
            elif fingerprint(path) in ledger.forgotten:
                # The content of a forgotten file is unknown, so it has no digest.
                loaded = replace(aside, digest="")
            seen[path] = KnownFile(newest=aside, loaded=loaded)
        for file in batch.files:
            path = f"{batch.prefix}{file.name}"
            seen[path] = KnownFile(newest=file, loaded=file)
            last_taken = max(last_taken, path)
        columns |= dict.fromkeys(batch.columns)
        newest = batch
    return replace(ledger, newest=newest, seen=seen, last_taken=last_taken, columns=tuple(columns))


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
        is_old = now_ms - file.newest.modified_ms > FORGET_AFTER_MS
        if was_listed and is_old:
            forgotten_paths.add(path)
    fingerprints = {fingerprint(path) for path in forgotten_paths if ledger.loaded(path)}
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
