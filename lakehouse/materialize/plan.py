"""Plans which part of an input a derived table reads: all rows, the latest changes, or nothing.

A derived table's own commits record which version of the input it consumed, and how its rows were
written. The commit that writes the rows records the version, with a transaction id, so the record
is never ahead of the rows (`docs/internals/decisions/0005-increments.md`).

- A RESTORE of ours undoes a faulty compaction, and its change feed has every restored row as an
  insert. A table that follows changes already has these rows, and skips the RESTORE. A table that
  read all rows in between has rows of the faulty compaction, so it reads the whole input again.
- If the input was rebuilt from its own rows, the rebuild is skipped. If it was rebuilt from its own
  inputs, a merge reads the rebuild, and an append cannot follow it.
- Commits that move rows to an archive or back, or let rows expire, are skipped.
- A foreign RESTORE or overwrite may repeat rows (`commits.may_repeat_rows`). A merge by keys
  ignores repeated rows. An append would duplicate them, so it cannot follow the changes.
- After a RESTORE of the derived table itself, the changes are read again that it then lacks.
"""

import json
from collections.abc import Iterable
from typing import cast

from lakehouse.base.errors import Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explained, Reason
from lakehouse.base.text import Document, object_of
from lakehouse.declare.table import Table
from lakehouse.delta.commits import (
    CONSUME,
    INPUTS,
    Commit,
    Commits,
    brought_back_by,
    is_news,
    keeps_rows,
    may_repeat_rows,
    rebuilt_from,
    restored_version,
    written_in,
)
from lakehouse.delta.snapshot import Snapshot

# In a commit's userMetadata: when each consumed version was committed (ms), by transaction id.
READ_MS = "read_ms"
# In a commit's userMetadata: the keys by which rows were merged; `None` for appended rows.
KEYS = "keys"
# Reasons to read all rows of an input.
FIRST_READ = "it is read for the first time"
CREATED_AGAIN = "it was created again since it was last read"
RESTORED = "a RESTORE has removed rows that were made from it"


@frozen
class ReadAll(Explained):
    """Read all rows of the input at version `upto`; `with_archive`, also those of its archive."""

    upto: int
    with_archive: bool = False


@frozen
class ReadChanges(Explained):
    """Read the change data feed from `first`, the oldest unread version with changes, to `upto`.

    Both ends are included. Versions in `passed_over` are skipped: their changes are no new rows.
    """

    first: int
    upto: int
    passed_over: tuple[int, ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges of versions to read, in order, both ends included; there is at least one."""
        ranges = list[tuple[int, int]]()
        start = self.first
        for end in (*self.passed_over, self.upto + 1):
            if start < end:
                ranges.append((start, end - 1))
            start = end + 1
        return tuple(ranges)


@frozen
class NothingNew(Explained):
    """Read nothing: no commit after the consumed version has rows to read."""


Increment = ReadAll | ReadChanges | NothingNew


@frozen
class Reader:
    """How a derived table has used its input so far.

    - `read_another`: it has read another table that had the input's key before.
    - `may_hold_all`: it may have read all rows of the input at the consumed version, not only the
      changes up to it.
    - `is_append`: it appends rows, so a row that is read twice would be duplicated.
    - `is_restored`: a RESTORE has removed rows, and it is unknown which versions they came from.
    """

    read_another: bool = False
    is_restored: bool = False
    may_hold_all: bool = False
    is_append: bool = False


def consume_app_id(read: Snapshot) -> str:
    """The transaction id under which a table records the consumed version of this input."""
    return f"{CONSUME}{read.table}/{read.table_id}"


def still_consumed(app_id: str, consumed: int, commits: Iterable[Commit]) -> int | None:
    """The version of an input that the table's rows come from: an older one after a RESTORE.

    A RESTORE removes rows, but not the transaction id that records them as `consumed`. `commits`
    are the table's commits, newest first. `None` if the version is unknown.
    """
    restored: int | None = None  # the version that a RESTORE brought back
    is_rebuilt = False
    for commit in commits:
        if restored is not None and commit.version > restored:
            continue
        if app_id in commit.applications:
            return commit.applications[app_id]
        if commit.operation == "RESTORE" and not is_rebuilt:
            restored = restored_version(commit)
            if restored is None:
                return None
        # A rebuild from the inputs does not record a version that the table has consumed already.
        is_rebuilt = is_rebuilt or (rebuilt_from(commit) is not None and not keeps_rows(commit))
    return consumed if restored is None else None


def plan_increment(
    consumed: int | None, input_version: int, history: Commits, reader: Reader
) -> Increment:
    """The part of an input to read at `input_version`.

    `consumed` is `None` if the input was never read. Commits after `input_version` are ignored. If
    the history lacks a commit after `consumed`, all rows are read. The caller refuses to append all
    rows to a table that exists.
    """
    table = history.table

    def read_all(why: str) -> ReadAll:
        explanation = Reason.INPUT_READ_WHOLE.explain(table=table, version=input_version, why=why)
        return ReadAll(upto=input_version, explanation=explanation)

    if consumed is None:
        if reader.is_restored:
            return read_all(RESTORED)
        return read_all(CREATED_AGAIN if reader.read_another else FIRST_READ)
    commits = history.between(consumed, input_version)
    if commits is None:
        return read_all(changes_lost(consumed))
    restored = [brought_back_by(commit) for commit in commits]
    is_undone = any(version is not None and version < consumed for version in restored)
    if reader.may_hold_all and is_undone:
        return read_all(f"version {consumed}, read last, is a compaction that was undone since")
    repeating = [commit for commit in commits if may_repeat_rows(commit)]
    if reader.is_append and repeating:
        first = repeating[0]
        operation = f"{first.operation} by another program"
        if rebuilt_from(first) is not None:
            operation = "rebuild from its inputs"
        explanation = Reason.INPUT_REPLACED.explain(
            table=table, version=input_version, replaced=first.version, operation=operation
        )
        return ReadAll(upto=input_version, explanation=explanation)
    news = [commit.version for commit in commits if is_news(commit)]
    if not news:
        explanation = Reason.INPUTS_UNCHANGED.explain(versions=f"{table} {consumed}")
        return NothingNew(explanation=explanation)
    versions = f"{table} {consumed} to {input_version}"
    later = [each for each in commits if each.version > news[0] and each.changed_data]
    return ReadChanges(
        first=news[0],
        upto=input_version,
        explanation=Reason.INPUTS_CHANGED.explain(versions=versions),
        passed_over=tuple(each.version for each in later if not is_news(each)),
    )


def changes_lost(consumed: int) -> str:
    """Why an input is read whole if its changes after version `consumed` are gone."""
    return f"its changes after version {consumed} are gone"


def check_written_alike(table: Table, commits: Iterable[Commit]) -> None:
    """Raises `Refused` if the declaration would not write rows like the newest rows."""
    if (other := other_way(table, commits)) is not None:
        way, version = other
        raise Refused(
            f"write of {table.key}: its rows are to be {declared_way(table)}, but the rows of"
            f" version {version} were {way}, so some rows would be duplicated or missing. Nothing"
            f" was written. Use `lakehouse rebuild {table.key}`, or restore the declaration"
        )


def other_way(table: Table, commits: Iterable[Commit]) -> tuple[str, int] | None:
    """How the newest derived rows were written, and their version; `None` if as declared.

    `commits` are the table's commits, newest first. Keys are compared under their present names.
    """
    keys = merge_keys(table)
    for commit in commits:
        written = written_in(commit)
        if INPUTS in written:
            return "overwritten", commit.version
        consumes = any(app_id.startswith(CONSUME) for app_id in commit.applications)
        has_derived = consumes or rebuilt_from(commit) is not None
        if has_derived and KEYS in written and _renamed(written[KEYS], table) != keys:
            return _way(written[KEYS]), commit.version
        if has_derived and not keeps_rows(commit):  # the newest commit that derived rows
            return None
    return None


def declared_way(table: Table) -> str:
    """The way in which the declaration writes derived rows, in words."""
    return _way(merge_keys(table))


def has_followed(read: Snapshot, commits: Iterable[Commit]) -> bool:
    """Whether the table has read this input again since its first write, or since a rebuild.

    `commits` are the table's commits, newest first.
    """
    for commit in commits:
        if rebuilt_from(commit) is not None and not keeps_rows(commit):
            return False
        if commit.version > 0 and consume_app_id(read) in commit.applications:
            return True
    return False


def merge_keys(table: Table) -> list[str] | None:
    """The keys that a table is merged by, sorted; `None` if it is not merged."""
    return sorted(table.merge.keys) if table.merge else None


def read_ms_of(commits: Iterable[Commit], app_id: str, version: int) -> int | None:
    """When the consumed version of an input was committed; `None` if no commit recorded it."""
    for commit in commits:
        if commit.applications.get(app_id) == version:
            read_ms = object_of(written_in(commit).get(READ_MS)).get(app_id)
            return read_ms if isinstance(read_ms, int) else None
    return None


def consumed_by_overwrite(
    commits: Iterable[Commit],
) -> dict[tuple[str, str], tuple[int, int | None]]:
    """For each input (key, table id) that the newest overwrite read, its version and commit time.

    Empty if there is no overwrite, or if another program wrote rows after it.
    """
    for commit in commits:
        writes_no_rows = not commit.changed_data and commit.operation != "WRITE"
        if writes_no_rows or keeps_rows(commit):
            continue
        consumed = dict[tuple[str, str], tuple[int, int | None]]()
        try:
            for key, (table_id, version, *ms) in written_in(commit)[INPUTS].items():
                consumed[str(key), str(table_id)] = (int(version), ms[0] if ms else None)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            break  # the rows no longer come only from our inputs
        return consumed
    return {}


def _renamed(keys: object, table: Table) -> object:
    """The keys in a commit, under their present names."""
    if not isinstance(keys, list):
        return keys
    return sorted(table.renamed.get(str(key), str(key)) for key in cast("list[object]", keys))


def _way(keys: object) -> str:
    return "appended" if keys is None else f"merged by {json.dumps(keys)}"


# In a commit's userMetadata: the hash of the transform that computed the commit's rows.
CODE = "code"
# In a commit's userMetadata: the newest version with rows of another transform.
EARLIER_CODE = "earlier_code"


def code_changed_since(commits: Iterable[Commit], code: str | None) -> int | None:
    """The newest version with rows of other code than `code`; `None` if no such rows are known.

    `commits` are newest first. Each commit that derives rows records the hash of the transform
    (`CODE`). If the table keeps rows of other code, the commit also records the newest version with
    such rows (`EARLIER_CODE`). A commit that computes all rows again records only the hash. So the
    newest commit that derived rows is enough. Commits that derive no rows, such as compactions, are
    skipped.

    Unknown code (`None`, or hashed in another way by another release) does not count as a change.
    """
    for commit in commits:
        written = written_in(commit)
        is_increment = any(app_id.startswith(CONSUME) for app_id in commit.applications)
        if not (is_increment or INPUTS in written or CODE in written):
            continue
        recorded = written.get(CODE)
        if code is not None and isinstance(recorded, str):
            # The part before the colon is the method by which the hash was computed.
            is_comparable = code.partition(":")[0] == recorded.partition(":")[0]
            if is_comparable and code != recorded:
                return commit.version
        earlier = written.get(EARLIER_CODE)
        return earlier if isinstance(earlier, int) else None
    return None


def code_record(code: str | None, earlier: int | None = None) -> Document:
    """The members of userMetadata for a commit whose rows `code` computed.

    `earlier` is the result of `code_changed_since` for the rows that the table keeps. It is omitted
    for a commit that computes all rows again.
    """
    record = {CODE: code, EARLIER_CODE: earlier}
    return {name: value for name, value in record.items() if value is not None}


def changed_code_sentence(table_key: str, since: int) -> str:
    """States that rows of earlier code exist, and how to compute them again."""
    return (
        f"its code has changed since version {since}, and existing rows were made by the earlier "
        f"code. Use lakehouse rebuild {table_key} to compute them again"
    )
