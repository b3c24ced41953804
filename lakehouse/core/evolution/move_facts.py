"""The facts behind the move of a table to another key, and why a move is refused."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakehouse.core.text import count_of, first_names, size_text

_RESTORE = "Use a copy of the lake to restore it"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """A move that has begun, as the journal stores it.

    With `is_copied`, the new place has everything, and the old log may be incomplete. With
    `is_finished`, the old folder was kept.
    """

    old_key: str
    new_key: str
    table_id: str
    version: int
    started_ms: int
    is_copied: bool = False
    is_finished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedFiles:
    """The objects of one kind, like `data files` or `landed batches`."""

    kind: str
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFacts:
    """The state of both keys before a move.

    - `problem`: why the old table cannot be moved, from the reading of its log; empty if it can.
    - `old_table`, `new_table`: identity and version of each table; `None` if there is none, or if
      its log is incomplete.
    - `new_count`: the objects at the new key.
    - `borrowers`: tables that read files of the old folder.
    - `inner`: tables in folders of the old one.
    - `largest_bytes`: the size of the largest object, `limit_bytes` the largest that can be copied.
    - `readers`: the keys of the declared tables that read this one.
    """

    old_key: str
    new_key: str
    moved: tuple[MovedFiles, ...]
    record: MoveRecord | None = None
    problem: str = ""
    old_table: tuple[str, int] | None = None
    new_table: tuple[str, int] | None = None
    new_count: int = 0
    borrowers: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()
    largest_bytes: int = 0
    limit_bytes: int | None = None
    declared: Collection[str] = ()
    adopted: Collection[str] = ()
    landed: Sequence[str] = ()
    readers: tuple[str, ...] = ()
    on_s3: bool = False


def refusal_of(facts: MoveFacts) -> str:
    """Why the move is refused and what to do, or an empty text."""
    why = _why_refused(facts)
    return f"move of {facts.old_key} to {facts.new_key}: {why}" if why else ""


def _why_refused(facts: MoveFacts) -> str:
    old = facts.old_key
    new = facts.new_key
    record = facts.record
    if old in facts.adopted or new in facts.adopted:
        adopted = old if old in facts.adopted else new
        return f"other programs write {adopted}, at its own address. Leave formerly= out"
    if old in facts.declared:
        return f"{old} is still declared. Remove that declaration, or formerly= of {new}"
    if record is not None and record.old_key != old:
        return (
            f"a move of {record.old_key} to {new} has begun. Use formerly={record.old_key!r} until"
            " it is finished"
        )
    if prefix := _landed_inside(facts):
        return f"files land in {prefix}, in its folder. Use a landing prefix outside"
    if record is None:
        return _why_not_begun(facts)
    if record.is_copied:
        return _why_not_finished(facts, record)
    if facts.problem:
        return facts.problem
    if facts.old_table is None or facts.old_table[0] != record.table_id:
        return f"the table at {old} is no longer the one that was to move. {_RESTORE}"
    return _too_large(facts)


def _landed_inside(facts: MoveFacts) -> str:
    """A landing prefix in the folder of one of the two keys, or above it; empty without one."""
    folders = (f"{facts.old_key}/", f"{facts.new_key}/")
    for prefix in facts.landed:
        if any(prefix.startswith(folder) or folder.startswith(prefix) for folder in folders):
            return prefix
    return ""


def _why_not_begun(facts: MoveFacts) -> str:
    old = facts.old_key
    new = facts.new_key
    if facts.new_table is not None:
        same = facts.old_table is not None and facts.new_table[0] == facts.old_table[0]
        if same:
            return (
                f"{new} is a copy of {old} that no move has made. Use a key without a table, or"
                " leave formerly= out"
            )
        return f"{new} has a table already. Use a key without a table, or leave formerly= out"
    if facts.new_count:
        return (
            f"{count_of(facts.new_count, 'object')} that no move has copied are at {new}. Use a key"
            " without files, or leave formerly= out"
        )
    if facts.problem:
        return facts.problem
    if facts.inner:
        return (
            f"{first_names(facts.inner)} are tables in its folder. Use keys for them outside of"
            f" {old}"
        )
    return _too_large(facts)


def _why_not_finished(facts: MoveFacts, record: MoveRecord) -> str:
    """Why the rest of the old folder must not be deleted."""
    new_table = facts.new_table
    if new_table is not None and new_table[0] == record.table_id and new_table[1] >= record.version:
        return ""
    return (
        f"it was copied, but {facts.new_key} does not hold version {record.version} of the table"
        f" {record.table_id} any more. {_RESTORE}"
    )


def _too_large(facts: MoveFacts) -> str:
    if facts.limit_bytes is None or facts.largest_bytes <= facts.limit_bytes:
        return ""
    return (
        f"a file has {size_text(facts.largest_bytes)}, and S3 copies at most"
        f" {size_text(facts.limit_bytes)} at once. Use the earlier key again, without formerly="
    )


def why_kept(facts: MoveFacts) -> str:
    """Why the old folder must be kept and what to do, or an empty text."""
    if not facts.borrowers:
        return ""
    return (
        f"{first_names(facts.borrowers)} may read files of {facts.old_key} (a shallow clone). Use"
        " --keep-old, which leaves the old folder"
    )
