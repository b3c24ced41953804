"""What a derived table reads of one input: all of it, the changes since the version it consumed last, or nothing.

The consumed version is a transaction id in the commit that writes the rows (`docs/decisions/0005-increments.md`), so it is never ahead
of them. Whatever is decided, `upto` is the version to record with that commit. For `NothingNew` there need not be one: the commits in
between are looked at again next time, and found to change nothing again.

A compaction whose rows differed is undone by a RESTORE of ours, which Delta marks as a change of data: its change feed would tell every
restored row as an insert. Whoever follows the changes has had them, and passes the RESTORE over. Whoever read the table whole between the
two has rows of the faulty compaction, and reads it whole again.

Somebody else's RESTORE or overwrite may tell rows a second time (`history.may_repeat_rows`). A merge by keys takes them without harm: what
is not newer by its order changes nothing. Who appends would have them twice, and cannot go on by changes.
"""

from dataclasses import dataclass

from lakehouse.core.delta.commits import Commits, brought_back_by, is_news, may_repeat_rows
from lakehouse.core.reasons import Explained, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAll(Explained):
    """Read the input whole, at version `upto`."""

    upto: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChanges(Explained):
    """Read the input's change data feed from version `first` to version `upto`, both included; `first` is the oldest that changed rows.

    `passed_over` are versions in between whose changes are no news, and are not to be read.
    """

    first: int
    upto: int
    passed_over: tuple[int, ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """What is to be read: first and last versions, both included, in order; never none."""
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
    """What to read of the input that `history` tells of, pinned to `input_version`; `consumed` is `None` where it was never read.

    `is_anew`: what was read before is not this table but one of the same name that was deleted. Commits newer than `input_version` are
    ignored. Where the history does not hold every commit since `consumed`, all of the input is read. `is_whole`: what was read at
    `consumed` was, or may have been, the input's rows themselves, not the changes that led to them. `is_append`: a row that is read a
    second time is there twice.
    """
    table = history.table
    if consumed is None:
        unread = Reason.INPUT_MADE_ANEW if is_anew else Reason.INPUT_UNREAD
        return ReadAll(upto=input_version, explanation=unread.explain(table=table, version=input_version))
    commits = history.between(consumed, input_version)
    if commits is None:
        lost = Reason.INPUT_HISTORY_LOST
        return ReadAll(upto=input_version, explanation=lost.explain(table=table, consumed=consumed, version=input_version))
    undoing = {commit.version: version for commit in commits if (version := brought_back_by(commit)) is not None}
    if is_whole and any(version < consumed for version in undoing.values()):
        undone = Reason.INPUT_UNDONE
        return ReadAll(upto=input_version, explanation=undone.explain(table=table, consumed=consumed, version=input_version))
    if is_append and (repeating := [commit for commit in commits if may_repeat_rows(commit)]):
        replaced, numbers = Reason.INPUT_REPLACED, {"replaced": repeating[0].version, "operation": repeating[0].operation}
        return ReadAll(upto=input_version, explanation=replaced.explain(table=table, version=input_version, **numbers))
    changed = [commit.version for commit in commits if is_news(commit)]
    if not changed:
        same = Reason.INPUTS_UNCHANGED
        return NothingNew(upto=input_version, explanation=same.explain(versions=f"{table} {consumed}"))
    news = Reason.INPUTS_CHANGED.explain(versions=f"{table} {consumed} to {input_version}")
    passed_over = tuple(version for version in undoing if version > changed[0])
    return ReadChanges(first=changed[0], upto=input_version, explanation=news, passed_over=passed_over)
