"""The part of one input that a derived table reads: all of it, the changes since the version it consumed last, or nothing.

What it consumed, and in which way its rows were written, is told by what its own commits carry. The consumed version is a transaction id
in the commit that writes the rows (`docs/internals/decisions/0005-increments.md`), so it is never ahead of them. Whatever is decided, `upto` is the
version to record with that commit.

A compaction whose rows differed is undone by a RESTORE of ours, which Delta marks as a change of data: its change feed would tell every
restored row as an insert. Whoever follows the changes has had them, and passes the RESTORE over. Whoever read the table whole between the
two has rows of the faulty compaction, and reads it whole again.

Somebody else's RESTORE or overwrite may tell rows a second time (`commits.may_repeat_rows`). A merge by keys takes them without harm: what
is not newer by its order changes nothing. Who appends would have them twice, and cannot go on by changes.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from lakehouse.core.declaration.schema_changes import UNCHANGED
from lakehouse.core.declaration.table import Merge, Table
from lakehouse.core.delta.commits import (
    INPUTS,
    Commit,
    Commits,
    brought_back_by,
    is_news,
    may_repeat_rows,
    written_in,
)
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explained, Reason

CONSUME = "lakehouse/consume/"  # so begin the transaction ids that tell which version of an input a commit consumed
READ_MS = "read_ms"  # in a commit's userMetadata: by such a transaction id, when that version was committed
KEYS = "keys"  # and the keys by which its rows were merged, `None` if they were appended


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAll(Explained):
    """Read the input whole, at version `upto`."""

    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChanges(Explained):
    """Read the input's change data feed from version `first`, which changed rows, to `upto`, without the versions `passed_over`."""

    first: int
    upto: int
    passed_over: tuple[int, ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges to be read: first and last versions, both included, in order; never none."""
        starts = (self.first, *(version + 1 for version in self.passed_over))
        ends = (*(version - 1 for version in self.passed_over), self.upto)
        return tuple((start, end) for start, end in zip(starts, ends, strict=True) if start <= end)


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingNew(Explained):
    """Read nothing: no commit up to `upto` changed a row since the version consumed last."""

    upto: int


type_of_increment = ReadAll | ReadChanges | NothingNew


def plan_increment(
    consumed: int | None,
    input_version: int,
    history: Commits,
    *,
    is_anew: bool = False,
    is_whole: bool = False,
    is_append: bool = False,
) -> type_of_increment:
    """The part to read of the input that `history` tells of, pinned to `input_version`; `consumed` is `None` where it was never read.

    Newer commits are ignored; where the history lacks one since `consumed`, all of the input is read. `is_anew`: another
    table of the same name was read before. `is_whole`: what was read at `consumed` was, or may have been, the input's rows themselves, not
    the changes that led to them. `is_append`: a row that is read a second time is there twice.
    """
    table = history.table

    def all_of_it(why: Reason, **numbers: object) -> ReadAll:
        return ReadAll(
            upto=input_version,
            explanation=why.explain(table=table, version=input_version, **numbers),
        )

    if consumed is None:
        return all_of_it(Reason.INPUT_MADE_ANEW if is_anew else Reason.INPUT_UNREAD)
    commits = history.between(consumed, input_version)
    if commits is None:
        return all_of_it(Reason.INPUT_HISTORY_LOST, consumed=consumed)
    undoing = {
        commit.version: version
        for commit in commits
        if (version := brought_back_by(commit)) is not None
    }
    if is_whole and any(version < consumed for version in undoing.values()):
        return all_of_it(Reason.INPUT_UNDONE, consumed=consumed)
    if is_append and (repeating := [commit for commit in commits if may_repeat_rows(commit)]):
        return all_of_it(
            Reason.INPUT_REPLACED, replaced=repeating[0].version, operation=repeating[0].operation
        )
    changed = [commit.version for commit in commits if is_news(commit)]
    if not changed:
        return NothingNew(
            upto=input_version,
            explanation=Reason.INPUTS_UNCHANGED.explain(versions=f"{table} {consumed}"),
        )
    news = Reason.INPUTS_CHANGED.explain(versions=f"{table} {consumed} to {input_version}")
    passed_over = tuple(version for version in undoing if version > changed[0])
    return ReadChanges(
        first=changed[0], upto=input_version, explanation=news, passed_over=passed_over
    )


def check_written_alike(table: Table, commits: Iterable[Commit]) -> None:
    """Refuse rows to a table whose newest run that derived rows wrote them in another way; the commits come newest first."""
    keys = merge_keys(table)
    for commit in commits:
        written = written_in(commit)
        is_increment = any(app_id.startswith(CONSUME) for app_id in commit.applications)
        if INPUTS in written or (is_increment and written.get(KEYS, keys) != keys):
            was = "overwritten" if INPUTS in written else _way(written[KEYS])
            raise Refused(
                f"write of {table.key}: its rows are to be {_way(keys)}, and those of version {commit.version} were {was}: some would be "
                f"there twice, or be missing. {UNCHANGED}"
            )
        if is_increment:
            return


def merge_keys(table: Table) -> list[str] | None:
    """The keys that a table is merged by, sorted; `None` if it is not merged."""
    return sorted(table.write.keys) if isinstance(table.write, Merge) else None


def read_ms_of(commits: Iterable[Commit], app_id: str, version: int) -> int | None:
    """The commit time of the version of an input that a table has consumed, as the table's own commit says; `None` if none tells."""
    told = next(
        (
            written_in(commit).get(READ_MS)
            for commit in commits
            if commit.applications.get(app_id) == version
        ),
        None,
    )
    found = cast("dict[str, Any]", told).get(app_id) if isinstance(told, dict) else None
    return found if isinstance(found, int) else None


def consume_app_id(read: Snapshot) -> str:
    """The transaction id under which a table records the version of its first input, of this identity, that its rows stand for."""
    return f"{CONSUME}{read.table}/{read.table_id}"


def consumed_by_overwrite(
    commits: Iterable[Commit],
) -> dict[tuple[str, str], tuple[int, int | None]]:
    """The version of each input, by key and identity, that the newest overwrite read, and its time; none if others wrote rows since."""
    for commit in commits:
        if not commit.changed_data and commit.operation != "WRITE":
            continue
        try:
            found = written_in(commit)[INPUTS]
            return {
                (str(key), str(table_id)): (int(version), next(iter(ms), None))
                for key, (table_id, version, *ms) in found.items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            break  # somebody else wrote the table since: its rows are no longer what our inputs give
    return {}


def _way(keys: object) -> str:
    return "appended" if keys is None else f"merged by {json.dumps(keys)}"
