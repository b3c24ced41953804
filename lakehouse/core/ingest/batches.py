"""Values for landed files, batches of them, and the ledger of all batches of a table.

The ledger of a table is a sequence of batch manifests, numbered from 1. Each is written before the
batch's rows. The table's own log records which batches arrived. So a batch that did not arrive is
repeated with exactly the same records, and a batch that arrived is never repeated. If a table's
folder was deleted, no batch has arrived, and all are repeated in order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from lakehouse.core.ingest.records import TextMark
from lakehouse.core.ingest.undeclared import AddedColumn

# The chance that a new name shares its fingerprint with one of ten million is one in 10^12.
FINGERPRINT_BYTES = 8
# The reason recorded in a manifest for a file of another format begins with these words.
FOREIGN = "its name ends in none of "


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file below the landing prefix; `name` is relative to the prefix.

    `digest` is empty until the file is read, `etag` if the store has none. `text_bytes` and
    `text_digest` are the size and digest of a compressed file's text. The first `loaded_records`
    records belong to older batches.
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

    With `is_quarantined`, a person should look at it, since its rows are missing from the table.
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

    `record_count` records are staged in `part_count` files, by the declaration with the digest
    `shape`; `refused_count` of them are not rows. `columns` are added to the table. `isolated` are
    the names of removed poison files, in one tuple per removal.
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
    """A file as described by the newest manifest that names it.

    With `is_taken`, its rows were loaded, or will be, by that batch or an older one. With
    `is_foreign`, it was set aside because of its name's ending. `loaded` is the loaded file of this
    name, if it was overwritten since. `earlier` are the digests of contents with which the file
    begins, and whose records older batches loaded.
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
    """The known files and columns of a table when a new batch is staged.

    `loaded` are the loaded files by name. If a file begins with its loaded content, only the
    records after it are staged, or all with `reads_whole`. `columns` were added to the table, and
    `table_types` has the types of all columns that its rows keep.
    """

    loaded: Mapping[str, KnownFile]
    columns: Sequence[AddedColumn] = ()
    table_types: Mapping[str, str] = field(default_factory=dict[str, str])
    reads_whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The earlier batches of `table`: the newest batch, and every named file by its path.

    `last_taken` is the greatest path of a taken file, or empty. `forgotten` are the fingerprints of
    loaded files that are otherwise forgotten. `columns` were added to the table, in this order.
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
    """The hash that is kept of a forgotten path. If two paths share one, the second is refused."""
    return sha256(path.encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def may_be_same(etag: str, other: str) -> bool:
    """Whether two etags can belong to the same content. An unknown etag can."""
    return etag == other or not etag or not other


def ingest_app_id(table_key: str) -> str:
    """The txnAppId under which a table's landed batches are written."""
    return f"lakehouse/ingest/{table_key}"


def set_aside(file: LandedFile, why: str, is_quarantined: bool) -> SetAside:
    """The file as set aside for a reason."""
    return SetAside(
        name=file.name,
        size_bytes=file.size_bytes,
        why=why,
        modified_ms=file.modified_ms,
        digest=file.digest,
        is_quarantined=is_quarantined,
        etag=file.etag,
    )
