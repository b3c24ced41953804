"""The landed files that make the next batch, and what becomes of each when it has been read.

The ledger of a table is a row of batch manifests, numbered from 1, each written before its rows are. The table's own log says which of
them arrived. So a batch that was planned and did not arrive is done again with the very same records, and one that arrived is never done
twice. Of a table whose folder was deleted none has arrived: all are done again, in order.

**Safety properties** (tests in `test_batches.py`, `test_load.py`)
- A loaded record is not loaded again while its file keeps its name. Another name is another file.
- A text file that grew gives its new records; any other replacement of a file is set aside.
- A file of which nothing was loaded is tried again when it changes.
- A file that is not loaded is named in a manifest, with the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from operator import attrgetter

from lakehouse.core.declaration.landing import Landing, is_public, is_retried, retried_folder
from lakehouse.core.declaration.write_modes import Overwrite, type_of_write
from lakehouse.core.ingest.batching_policy import Waiting, released_by
from lakehouse.core.ingest.records import TextMark
from lakehouse.core.ingest.undeclared import AddedColumn
from lakehouse.core.reasons import Explained, Reason
from lakehouse.core.text import names_in_parentheses

# Among ten million names, that a new one shares its fingerprint with any of them has a chance of one in a million million.
FINGERPRINT_BYTES = 8
FOREIGN = "its name ends in none of "  # so begins the reason of a file of another format, in every manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file below the landing prefix, by its name there; `digest` is empty until it is read, `etag` where the store has none.

    `text_bytes` and `text_digest` are those of a packed file's text. The first `loaded_records` records belong to older batches.
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
        """The mark of the text that the file had; that of its bytes where it is not packed."""
        return _text_mark(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A landed file that is not read, and why. `is_quarantined`: a person should look, since its rows are missing in the table."""

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

    `record_count` records, `refused_count` of them no rows, are staged in `part_count` files, by the declaration that `shape` tells; empty
    is unknown. `columns` come with it, `isolated` was taken out again.
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
    """The facts of a file in the newest manifest that names it; what it does not tell is `None` or empty.

    `is_taken`: its rows were loaded, or are about to be, by this batch or an older one. `is_foreign`: it was set aside for its name's end.
    `loaded`: the file of this name that was loaded, where another one has been written over it since. It begins with the contents that
    have the digests `earlier`, whose records older batches loaded.
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
        """The same as of a `LandedFile`."""
        return _text_mark(self)

    @property
    def as_loaded(self) -> "KnownFile":
        """The file of this name whose rows were loaded."""
        return self.loaded or self


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The record of earlier plans: the newest manifest, and every file that any manifest names, by its path below the lake's root.

    `table` is the key of the table. `last_taken` is the greatest path of a file that was taken and not set aside, empty if there is none.
    `forgotten` are the fingerprints of loaded files of which nothing else is known. `columns` were added to the table, in this order.
    """

    newest: Batch | None
    seen: Mapping[str, KnownFile]
    table: str = ""
    last_taken: str = ""
    forgotten: frozenset[bytes] = frozenset()
    columns: tuple[AddedColumn, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan(Explained):
    """The next batch, or `None` with the reason to wait; `is_new`: it has no manifest yet. `left` files wait for batches after it.

    `superseded` are files that are set aside with a new batch if one of its files is good.
    """

    batch: Batch | None
    is_new: bool
    superseded: tuple[SetAside, ...] = ()
    left: int = 0


def _text_mark(file: LandedFile | KnownFile) -> TextMark:
    if file.text_bytes is None:
        return TextMark(file.size_bytes, file.digest)
    return TextMark(file.text_bytes, file.text_digest)


def fingerprint(path: str) -> bytes:
    """The hash that stays of a forgotten path. Two paths that share one cost a person a refusal, and no row."""
    return sha256(path.encode("utf-8", "surrogatepass")).digest()[:FINGERPRINT_BYTES]


def may_be_same(etag: str, other: str) -> bool:
    """Whether two etags can be of one content; an unknown one says nothing."""
    return etag == other or not etag or not other


def ingest_app_id(table_key: str) -> str:
    """The txnAppId under which a table's landed batches are written."""
    return f"lakehouse/ingest/{table_key}"


def choose_batch(
    listing: Sequence[LandedFile],
    ledger: Ledger,
    landing: Landing,
    write: type_of_write,
    *,
    unfinished: Batch | None,
    now_ms: int | None = None,
) -> BatchPlan:
    """The next batch: the `unfinished` one, or else what is new in `listing`; without `now_ms`, it need not wait for the release policy.

    A private name is never looked at. Set aside are files of another kind, too large or changed after they were taken; and for an
    `Overwrite` all but the newest.
    """
    if unfinished is not None:
        return _plan(unfinished, is_new=False, reason=Reason.BATCH_UNFINISHED)
    new = sorted(files_that_wait(listing, ledger, landing), key=attrgetter("name"))
    if not new:
        return BatchPlan(
            batch=None,
            is_new=False,
            explanation=Reason.NOTHING_LANDED.explain(seen=len(ledger.seen)),
        )
    waiting = Waiting(
        count=len(new),
        size_bytes=sum(each.size_bytes for each in new),
        oldest_ms=min(each.modified_ms for each in new),
    )
    released = "" if now_ms is None else released_by(waiting, landing, now_ms)
    if not isinstance(released, str):
        return BatchPlan(batch=None, is_new=False, explanation=released)
    problems = {file.name: problem for file in new if (problem := _problem(file, ledger, landing))}
    taken, superseded = _take(
        [file for file in new if file.name not in problems], ledger, landing, write
    )
    batch = Batch(
        number=1 if ledger.newest is None else ledger.newest.number + 1,
        files=tuple(taken),
        set_aside=tuple(
            set_aside(file, *problems[file.name]) for file in new if file.name in problems
        ),
        prefix=landing.prefix,
    )
    left = len(new) - len(taken) - len(problems) - len(superseded)
    return replace(
        _plan(
            batch,
            is_new=True,
            reason=Reason.BATCH_READY,
            superseded=tuple(superseded),
            more=released,
        ),
        left=left,
    )


def _plan(
    batch: Batch,
    *,
    is_new: bool,
    reason: Reason,
    superseded: tuple[SetAside, ...] = (),
    more: str = "",
) -> BatchPlan:
    total = sum(file.size_bytes for file in batch.files)
    explanation = reason.explain(
        files=len(batch.files),
        bytes=total,
        batch=batch.number,
        set_aside=len(batch.set_aside) + len(superseded),
        names=names_in_parentheses([file.name for file in (*batch.set_aside, *superseded)]),
    )
    return BatchPlan(
        batch=batch,
        is_new=is_new,
        explanation=replace(explanation, more=more),
        superseded=superseded,
    )


def files_that_wait(
    listing: Iterable[LandedFile], ledger: Ledger, landing: Landing
) -> list[LandedFile]:
    """The files that no manifest names as they are, without those whose names are not looked at."""
    return [
        file
        for file in listing
        if may_be_loaded(file.name, ledger.table) and not _is_settled(file, ledger, landing)
    ]


def may_be_loaded(name: str, table_key: str) -> bool:
    """Whether a table looks at a landed file of this name: it is public, or holds retried lines of this very table."""
    return is_public(name) or name.startswith(retried_folder(table_key))


def _is_settled(file: LandedFile, ledger: Ledger, landing: Landing) -> bool:
    """Whether a manifest names the file as it is, by its size, and its etag or time."""
    known = ledger.seen.get(f"{landing.prefix}{file.name}")
    if (
        known is None
        or known.size_bytes != file.size_bytes
        or not may_be_same(known.etag, file.etag)
    ):
        return False
    is_same = bool(known.etag and file.etag) or known.modified_ms == file.modified_ms
    return is_same and not (known.is_foreign and landing.takes(file.name))


def set_aside(file: LandedFile, why: str, is_quarantined: bool) -> SetAside:
    """The file as one that is in no batch, and why."""
    return SetAside(
        name=file.name,
        size_bytes=file.size_bytes,
        why=why,
        modified_ms=file.modified_ms,
        digest=file.digest,
        is_quarantined=is_quarantined,
        etag=file.etag,
    )


def _problem(file: LandedFile, ledger: Ledger, landing: Landing) -> tuple[str, bool] | None:
    """Why a file is not even read, and whether a person should look at it."""
    known = ledger.seen.get(path := f"{landing.prefix}{file.name}")
    if "" in file.name.split("/"):
        return (
            "its name has an empty part, with which no store reads it; land it under another name",
            True,
        )
    if fingerprint(path) in ledger.forgotten:
        return (
            "a file of this name was loaded, and is forgotten but for its name; land only what is new, under a new name",
            True,
        )
    if known is not None and known.is_taken and not _may_continue(known.as_loaded, file, landing):
        return describe_change(known, file), True
    if not landing.takes(file.name) and not is_retried(file.name):
        return f"{FOREIGN}{', '.join(landing.suffixes)}", False
    if file.name.encode("utf-8", "ignore").decode() != file.name:
        return (
            "its name is not UTF-8, so that no row could tell where it comes from; land it under another name",
            True,
        )
    if file.size_bytes > landing.max_file_bytes:
        return (
            f"it has {file.size_bytes} bytes, at most {landing.max_file_bytes} are read; land it in smaller files",
            True,
        )
    return None


def _may_continue(loaded: KnownFile, now: LandedFile, landing: Landing) -> bool:
    """Whether the file may have the content that was loaded, or begin with it, so that it must be read."""
    if loaded.size_bytes == now.size_bytes:
        return True
    is_longer = loaded.size_bytes < now.size_bytes or loaded.text_bytes is not None
    return landing.format in ("json", "csv") and bool(loaded.digest) and is_longer


def describe_change(known: KnownFile, now: LandedFile) -> str:
    """Why a file is not read that was loaded as another one, and what to do."""
    before = known.as_loaded.size_bytes
    what = "its content is another" if before == now.size_bytes else f"it has {now.size_bytes} now"
    return (
        f"it had {before} bytes when it was taken and {what}; it does not provably begin with what was loaded, whose records stay. "
        "Land only the records that are new, under a new name: the whole file would load the others twice"
    )


def _take(
    good: Sequence[LandedFile], ledger: Ledger, landing: Landing, write: type_of_write
) -> tuple[Sequence[LandedFile], Sequence[SetAside]]:
    if not isinstance(write, Overwrite) or not good:
        sizes = accumulate(file.size_bytes for file in good[: landing.max_batch_files])
        return good[
            : max(1, sum(size_bytes <= landing.max_batch_bytes for size_bytes in sizes))
        ], []
    before = (
        ledger.last_taken,
        *(path for path, known in ledger.seen.items() if known.is_taken and known.digest),
    )
    # Paths below another prefix, or of another format, were taken by an earlier declaration, and are not in this order.
    ours = (
        path.removeprefix(landing.prefix)
        for path in before
        if path.startswith(landing.prefix) and landing.takes(path)
    )
    newest = max((good[-1].name, *ours))
    taken = [file for file in good if file.name == newest]
    return taken, [
        set_aside(file, f"{newest} is newer and replaces it", False)
        for file in good
        if file.name != newest
    ]
