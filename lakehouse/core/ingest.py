"""Which landed files make the next batch.

The ledger of a table is a row of batch manifests, numbered from 1, each written before its rows are. The table's own
log says which of them arrived (txnVersion of the app id `ingest_app_id`). So a batch that was planned and did not
arrive is done again with the very same files, and one that arrived is never done twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.core.reason import Reason
from lakehouse.core.table import Landing, Overwrite, type_of_write


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedFile:
    """A file below the landing prefix: its name relative to the prefix, its size, when it was last modified."""

    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A landed file that is not read, and why."""

    name: str
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The files that one write takes, under one number."""

    number: int
    files: tuple[LandedFile, ...]
    set_aside: tuple[SetAside, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What was planned before: the newest manifest, and every name (with its size) that any manifest holds."""

    newest: Batch | None
    seen: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The next batch, or `None` with the reason to wait. `is_new`: its manifest must be written before its rows."""

    batch: Batch | None
    is_new: bool
    reason: Reason
    sentence: str


def ingest_app_id(table_key: str) -> str:
    """The txnAppId under which a table's landed batches are written."""
    return f"lakehouse/ingest/{table_key}"


def choose_batch(listing: Sequence[LandedFile], ledger: Ledger, landing: Landing, write: type_of_write, *, arrived: int) -> BatchPlan:
    """The next batch of `listing`; `arrived` is the number of the last batch that the table's log knows, 0 if none.

    Names that start with `.` or `_`, at any level, are unfinished or private and never looked at. An `Overwrite` takes only the newest
    file by name and sets the older ones aside. A file whose size changed after it was taken is set aside, too.
    """
    if ledger.newest is not None and ledger.newest.number > arrived:
        return _plan(ledger.newest, is_new=False, reason=Reason.BATCH_UNFINISHED)
    fresh = [
        file
        for file in sorted(listing, key=lambda file: file.name)
        if _is_public(file.name) and ledger.seen.get(file.name) != file.size_bytes
    ]
    foreign = [
        SetAside(name=file.name, size_bytes=file.size_bytes, why=why) for file in fresh if (why := _why_foreign(file, ledger, landing))
    ]
    refused = {aside.name for aside in foreign}
    good = [file for file in fresh if file.name not in refused]
    taken, superseded = _take(good, write, most=landing.max_batch_files)
    if not taken and not foreign:
        return BatchPlan(batch=None, is_new=False, reason=Reason.NOTHING_LANDED, sentence=Reason.NOTHING_LANDED.say(seen=len(ledger.seen)))
    number = 1 if ledger.newest is None else ledger.newest.number + 1
    return _plan(Batch(number=number, files=tuple(taken), set_aside=(*foreign, *superseded)), is_new=True, reason=Reason.BATCH_READY)


def _plan(batch: Batch, *, is_new: bool, reason: Reason) -> BatchPlan:
    total = sum(file.size_bytes for file in batch.files)
    return BatchPlan(
        batch=batch, is_new=is_new, reason=reason, sentence=reason.say(files=len(batch.files), bytes=total, batch=batch.number)
    )


def _is_public(name: str) -> bool:
    return not any(part.startswith((".", "_")) for part in name.split("/"))


def _why_foreign(file: LandedFile, ledger: Ledger, landing: Landing) -> str | None:
    if file.name in ledger.seen:
        return f"it was taken at {ledger.seen[file.name]} bytes and has {file.size_bytes} now; landed files must not change, land it under a new name"
    if not file.name.endswith(landing.suffixes):
        return f"its name ends in none of {', '.join(landing.suffixes)}"
    return None


def _take(good: Sequence[LandedFile], write: type_of_write, *, most: int) -> tuple[Sequence[LandedFile], Sequence[SetAside]]:
    if isinstance(write, Overwrite) and good:
        return good[-1:], [
            SetAside(name=file.name, size_bytes=file.size_bytes, why=f"{good[-1].name} is newer and replaces it") for file in good[:-1]
        ]
    return good[:most], []
