"""Landed files, batches of them, and the ledger of all batches of a table, as values.

The ledger of a table is a sequence of batch manifests, numbered from 1, each written before its
rows are. The table's own log records which of them arrived. So a batch that did not arrive is
repeated with the very same records, and one that arrived is never repeated. If a table's folder was
deleted, none has arrived: all are repeated in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from lakehouse.core.ingest.records import TextMark
from lakehouse.core.ingest.undeclared import AddedColumn

# The chance that a new name shares its fingerprint with any of ten million is one in 10^12.
FINGERPRINT_BYTES = 8
# The first words of the reason of a file of another format, in every manifest.
FOREIGN = "its name ends in none of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file below the landing prefix, by its name there.

    `digest` is empty until the file is read, `etag` if the store has none. `text_bytes` and
    `text_digest` are those of a compressed file's text. The first `loaded_records` records belong
    to older batches.
    """

    name: str
    size_bytes: int
    modified_ms: int
    digest: str = ""
    etag: str = ""
    text_bytes: int | None = None
    text_digest: str = ""
    loaded_records: int = 0

    @property
    def text(self) -> TextMark:
        """Length and digest of the text that the file had."""
        return _text_mark(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A landed file that is not loaded, and why.

    With `is_quarantined`, a person should look at it, since its rows are missing in the table.
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
    """The files below `prefix` that one write takes, under one number.

    `record_count` records, of which `refused_count` are not rows, are staged in `part_count` files,
    by the declaration with the digest `shape`. `columns` are added to the table. `isolated` are the
    names of poison files that were taken out, a tuple for each time.
    """

    number: int
    files: tuple[LandedFile, ...]
    set_aside: tuple[SetAside, ...] = ()
    prefix: str = ""
    part_count: int | None = None
    record_count: int | None = None
    refused_count: int | None = None
    columns: tuple[AddedColumn, ...] = ()
    isolated: tuple[tuple[str, ...], ...] = ()
    shape: str = ""

    @property
    def quarantined(self) -> tuple[SetAside, ...]:
        """The files that go to the quarantine table."""
        return tuple(aside for aside in self.set_aside if aside.is_quarantined)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFile:
    """A file as the newest manifest that names it describes it.

    With `is_taken`, its rows were loaded, or are about to be, by this batch or an older one. With
    `is_foreign`, it was set aside for its name's ending. `loaded` is the file of this name that was
    loaded, if another one was written over it since. The file begins with the contents with the
    digests `earlier`, whose records older batches loaded.
    """

    size_bytes: int
    modified_ms: int | None = None
    digest: str = ""
    is_taken: bool = True
    is_foreign: bool = False
    etag: str = ""
    loaded: "KnownFile | None" = None
    text_bytes: int | None = None
    text_digest: str = ""
    earlier: tuple[str, ...] = ()

    @property
    def text(self) -> TextMark:
        """Length and digest of the text that the file had."""
        return _text_mark(self)

    @property
    def as_loaded(self) -> "KnownFile":
        """The file of this name whose rows were loaded."""
        return self.loaded or self


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFiles:
    """What is known of a table when a new batch is staged.

    `loaded` are the loaded files by name. Of a file that begins with its loaded content only the
    records after it are staged, or all with `reads_whole`. `columns` were added to the table.
    """

    loaded: Mapping[str, KnownFile]
    columns: Sequence[AddedColumn] = ()
    reads_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What is known of earlier batches of `table`: the newest one, and every named file by its
    path.

    `last_taken` is the greatest path of a file that was taken, or empty. `forgotten` are the
    fingerprints of loaded files of which nothing else is known. `columns` were added to the table,
    in this order.
    """

    newest: Batch | None
    seen: Mapping[str, KnownFile]
    table: str = ""
    last_taken: str = ""
    forgotten: frozenset[bytes] = frozenset()
    columns: tuple[AddedColumn, ...] = ()


def _text_mark(file: LandedFile | KnownFile) -> TextMark:
    if file.text_bytes is None:
        return TextMark(file.size_bytes, file.digest)
    return TextMark(file.text_bytes, file.text_digest)


def fingerprint(path: str) -> bytes:
    """The hash that stays of a forgotten path. If two paths share one, the second is refused."""
    return sha256(path.encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def may_be_same(etag: str, other: str) -> bool:
    """Whether two etags can belong to the same content; an unknown one can."""
    return etag == other or not etag or not other


def ingest_app_id(table_key: str) -> str:
    """The txnAppId under which a table's landed batches are written."""
    return f"lakehouse/ingest/{table_key}"


def set_aside(file: LandedFile, why: str, is_quarantined: bool) -> SetAside:
    """The file as one that is not loaded, and why."""
    return SetAside(
        name=file.name,
        size_bytes=file.size_bytes,
        why=why,
        modified_ms=file.modified_ms,
        digest=file.digest,
        is_quarantined=is_quarantined,
        etag=file.etag,
    )
