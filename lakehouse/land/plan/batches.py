"""Values for landed files, batches and the ledger, and what commands on a quarantine did.

The ledger of a table is a sequence of batch manifests, numbered from 1. Each manifest is written
before the batch's rows. The table's own log records which batches were loaded. A loaded batch is
never repeated. Batches that were not loaded are repeated in order, with the files that their
manifests name; for an `Overwrite`, only the newest of them is repeated. If the table's folder was
deleted, no batch counts as loaded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from lakehouse.base.text import count_of, first_names
from lakehouse.declare.landing import Landing

# The length of the fingerprint that is kept of a forgotten path. The chance that a new path shares
# its fingerprint with one of ten million paths is one in 10^12.
FINGERPRINT_BYTES = 8
# In a manifest, the reason for setting a file of another format aside begins with these words.
FOREIGN = "its name ends in none of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file below the landing prefix; `name` is relative to the prefix.

    `digest` is empty until the file is read. `etag` is empty if the store has none.
    `loaded_records` is not 0 for a file that grew: older batches loaded its first `loaded_records`
    records. With `by_spark`, Spark reads the file itself, and `digest` is its store's checksum.
    `blocks` has then the counts of lines and of records in each block of a text, or the count of
    rows twice.
    """

    name: str
    size_bytes: int
    modified_ms: int
    digest: str = ""
    etag: str = ""
    loaded_records: int = 0
    by_spark: bool = False
    blocks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A landed file that is not loaded, and why.

    With `is_quarantined`, the table lacks the file's rows, and a person should look at the file.
    """

    name: str
    size_bytes: int
    why: str
    modified_ms: int | None = None
    digest: str = ""
    is_quarantined: bool = False
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file, as the newest manifest that names it describes it.

    - `is_taken`: a batch loads rows of a file with this name, perhaps with earlier content. If not,
      the file was only set aside.
    - `is_foreign`: the file was set aside because of the ending of its name.
    - `loaded`: the file as it was loaded, if it was overwritten afterwards and then set aside.
    """

    size_bytes: int
    modified_ms: int | None = None
    digest: str = ""
    is_taken: bool = True
    is_foreign: bool = False
    etag: str = ""
    loaded: "KnownFile | None" = None

    @property
    def as_loaded(self) -> "KnownFile":
        """The file of this name as it was loaded, if `is_taken`."""
        return self.loaded or self


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFiles:
    """The known files and columns of a table when a new batch is staged.

    `loaded` maps names to loaded files. If a file begins with the content that was loaded under its
    name, only the records after this content are staged; with `reads_whole`, all records are
    staged. Earlier batches added `columns` to the table. `table_types` maps the table's columns to
    their types.
    """

    loaded: Mapping[str, KnownFile]
    columns: Sequence[str] = ()
    table_types: Mapping[str, str] = field(default_factory=dict[str, str])
    reads_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known about the earlier batches of `table`, whether or not they were loaded.

    - `newest`: the newest batch; `None` if there is none.
    - `seen`: the files of all batches, by full path, without forgotten files (`ledger_segments`).
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


def files_of_spark(batch: Batch) -> list[LandedFile]:
    """The files of a batch that Spark reads itself. The records of all others are staged."""
    return [file for file in batch.files if file.by_spark]


def fingerprint(path: str) -> bytes:
    """The hash that is kept of the path of a loaded file when the file is forgotten.

    A new file whose path has such a fingerprint is set aside.
    """
    return sha256(path.encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def may_be_same(etag: str, other: str) -> bool:
    """Whether two etags can belong to the same content. An unknown (empty) etag always can."""
    return etag == other or not etag or not other


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
    aside = {path: known for path, known in ledger.seen.items() if not known.is_taken}
    foreign = [path for path, known in aside.items() if known.is_foreign]
    others = [path for path, known in aside.items() if not known.is_foreign]
    sentences = list[str]()
    if foreign:
        endings = ", ".join(landing.suffixes)
        count = count_of(len(foreign), "file")
        sentences.append(
            f"{count} set aside, since the name ends in none of {endings}: {first_names(foreign)}"
        )
    if others:
        count = count_of(len(others), "file")
        sentences.append(f"{count} set aside for other reasons: {first_names(others)}")
    return "; ".join(sentences) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReview:
    """The effect of a command on a quarantine. With `dry_run`, the effect that it would have.

    `lines` and `files` count the lines and files that leave the quarantine. If `dropped` is not 0,
    a person has handled them: they are not loaded. Otherwise, they are loaded again, lines from the
    new files `landed`. `left` counts what stays in the quarantine, by reason.
    """

    table: str
    dry_run: bool
    lines: int
    files: int
    dropped: int = 0
    landed: tuple[str, ...] = ()
    left: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def sentence(self) -> str:
        """The effect as a sentence."""
        lines = count_of(self.lines, "line")
        files = count_of(self.files, "file")
        if self.dropped:
            return f"{'would drop' if self.dry_run else 'dropped'} {lines} and {files}"
        verb = "would land" if self.dry_run else "landed"
        where = f" in {first_names(self.landed)}" if self.landed else ""
        kept = "".join(f"; {count} kept: {why}" for why, count in self.left.items())
        return f"{verb} {lines} again{where}; to be read again: {files}{kept}"
