"""Which landed files make the next batch.

The ledger of a table is a row of batch manifests, numbered from 1, each written before its rows are. The table's own
log says which of them arrived (txnVersion of the app id `ingest_app_id`). So a batch that was planned and did not
arrive is done again with the very same files, and one that arrived is never done twice. Of a table whose folder was
deleted none has arrived: all are done again, in order.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

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
    """What was planned before: the newest manifest, and every name (with its size) that any manifest holds.

    `last_taken` is the greatest name of a file that was taken and not set aside, empty if there is none.
    """

    newest: Batch | None
    seen: Mapping[str, int]
    last_taken: str = ""


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


def find_unfinished(ledger: Ledger, write: type_of_write, *, arrived: int, read: Callable[[int], Batch]) -> Batch | None:
    """The batch to do again: the oldest with files after `arrived`, the last one that the table's log knows (0 if none).

    Of an `Overwrite` it is the newest, which replaces all before it. `read` gives an older batch than the newest by its
    number; it is not called where the newest has arrived, or is the only one that has not.
    """
    newest = ledger.newest
    if newest is None:
        return None
    numbers = range(arrived + 1, newest.number + 1)
    for number in reversed(numbers) if isinstance(write, Overwrite) else numbers:
        batch = newest if number == newest.number else read(number)
        if batch.files:
            return batch
    return None


def choose_batch(
    listing: Sequence[LandedFile],
    ledger: Ledger,
    landing: Landing,
    write: type_of_write,
    *,
    unfinished: Batch | None,
    unreadable: str = "",
) -> BatchPlan:
    """The next batch: the `unfinished` one (see `find_unfinished`), or else what is new in `listing`.

    Names that start with `.` or `_`, at any level, are unfinished or private and never looked at. Set aside are files of another kind,
    files over the landing's limit, files whose names match the pattern `unreadable`, files whose size changed after they were taken and,
    for an `Overwrite`, all but the newest by name, be they landed now or taken before. A batch may hold nothing but files set aside: then
    its manifest is all, and nothing is to arrive.
    """
    if unfinished is not None:
        return _plan(unfinished, is_new=False, reason=Reason.BATCH_UNFINISHED)
    fresh = [file for file in sorted(listing, key=attrgetter("name")) if _is_public(file.name) and not _is_known(file, ledger)]
    if not fresh:
        return BatchPlan(batch=None, is_new=False, reason=Reason.NOTHING_LANDED, sentence=Reason.NOTHING_LANDED.say(seen=len(ledger.seen)))
    foreign = [_set_aside(file, why) for file in fresh if (why := _why_foreign(file, ledger, landing, unreadable))]
    refused = {aside.name for aside in foreign}
    taken, superseded = _take([file for file in fresh if file.name not in refused], ledger, landing, write)
    number = 1 if ledger.newest is None else ledger.newest.number + 1
    return _plan(Batch(number=number, files=tuple(taken), set_aside=(*foreign, *superseded)), is_new=True, reason=Reason.BATCH_READY)


def _plan(batch: Batch, *, is_new: bool, reason: Reason) -> BatchPlan:
    total = sum(file.size_bytes for file in batch.files)
    sentence = reason.say(files=len(batch.files), bytes=total, batch=batch.number, set_aside=len(batch.set_aside))
    return BatchPlan(batch=batch, is_new=is_new, reason=reason, sentence=sentence)


def _is_public(name: str) -> bool:
    return not any(part.startswith((".", "_")) for part in name.split("/"))


def _is_known(file: LandedFile, ledger: Ledger) -> bool:
    return ledger.seen.get(file.name) == file.size_bytes


def _set_aside(file: LandedFile, why: str) -> SetAside:
    return SetAside(name=file.name, size_bytes=file.size_bytes, why=why)


def _why_foreign(file: LandedFile, ledger: Ledger, landing: Landing, unreadable: str) -> str | None:
    if file.name in ledger.seen:
        before = ledger.seen[file.name]
        return (
            f"it had {before} bytes when it was taken and has {file.size_bytes} now; landed files must not change, land it under a new name"
        )
    if not file.name.endswith(landing.suffixes):
        return f"its name ends in none of {', '.join(landing.suffixes)}"
    if unreadable and (match := re.search(unreadable, file.name)):
        return f"its name holds {match[0]!r}, which Spark cannot read here; land it under another name"
    if file.size_bytes > landing.max_file_bytes:
        return f"it has {file.size_bytes} bytes, at most {landing.max_file_bytes} are read; land it in smaller files"
    return None


def _take(
    good: Sequence[LandedFile], ledger: Ledger, landing: Landing, write: type_of_write
) -> tuple[Sequence[LandedFile], Sequence[SetAside]]:
    if not isinstance(write, Overwrite) or not good:
        return good[: landing.max_batch_files], []
    before = ledger.last_taken if ledger.last_taken.endswith(landing.suffixes) else ""
    newest = max(good[-1].name, before)
    taken = [file for file in good if file.name == newest]
    return taken, [_set_aside(file, f"{newest} is newer and replaces it") for file in good if file.name != newest]
