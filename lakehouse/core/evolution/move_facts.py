"""The facts for the move of a table to another key, and the reasons to refuse a move."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lakehouse.core.text import count_of, first_names, size_text

_RESTORE = "Use a copy of the lake to restore it"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """A move that has begun, as the journal stores it.

    - `is_copied`: everything has been copied to the new key. The deletion of the old objects may
      have begun, so the old log may be incomplete.
    - `is_finished`: the move is finished, and the old folder was kept.
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
    """The objects of one kind, for example `data files` or `landed batches`."""

    kind: str
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFacts:
    """The state of both keys before a move.

    - `moved`: the objects at the old key, by kind.
    - `record`: the move to the new key, if it has begun.
    - `problem`: why the old table cannot be moved, according to its log; empty if it can be moved.
    - `old_table`, `new_table`: table id and version at each key; `None` if there is no table, or if
      its log is incomplete.
    - `new_count`: the number of objects at the new key.
    - `borrowers`: other tables that read files of the old folder.
    - `inner`: tables inside the old folder.
    - `largest_bytes`: the size of the largest object.
    - `limit_bytes`: the largest object that one request can copy; `None` if there is no limit.
    - `declared`, `adopted`: the keys of all declared and of all adopted tables.
    - `landed`: the landing prefixes of all tables.
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
    """Why the move is refused and what to do; empty if it is not refused."""
    why = _why_refused(facts)
    return f"move of {facts.old_key} to {facts.new_key}: {why}" if why else ""


def _why_refused(facts: MoveFacts) -> str:
    old = facts.old_key
    new = facts.new_key
    record = facts.record
    if old in facts.adopted or new in facts.adopted:
        adopted = old if old in facts.adopted else new
        return f"other programs write {adopted}, an adopted table. Leave formerly= out"
    if old in facts.declared:
        return f"{old} is still declared. Either remove that declaration, or formerly= of {new}"
    if record is not None and record.old_key != old:
        return (
            f"a move of {record.old_key} to {new} has begun. Use formerly={record.old_key!r} until"
            " that move is finished"
        )
    if prefix := _landed_inside(facts):
        return (
            f"files land in {prefix}, which overlaps a folder of the move. Use a landing prefix"
            f" outside of {old} and {new}"
        )
    if record is None:
        return _why_not_begun(facts)
    if record.is_copied:
        return _why_not_finished(facts, record)
    if facts.problem:
        return facts.problem
    if facts.old_table is None or facts.old_table[0] != record.table_id:
        return f"the table at {old} was replaced after the move began. {_RESTORE}"
    return _too_large(facts)


def _landed_inside(facts: MoveFacts) -> str:
    """A landing prefix inside or above the folder of either key; empty if there is none."""
    folders = (f"{facts.old_key}/", f"{facts.new_key}/")
    for prefix in facts.landed:
        if any(prefix.startswith(folder) or folder.startswith(prefix) for folder in folders):
            return prefix
    return ""


def _why_not_begun(facts: MoveFacts) -> str:
    old = facts.old_key
    new = facts.new_key
    if facts.new_table is not None:
        is_copy = facts.old_table is not None and facts.new_table[0] == facts.old_table[0]
        if is_copy:
            return (
                f"{new} is a copy of {old} that no move has made. Use a key without a table, or"
                " leave formerly= out"
            )
        return f"{new} has a table already. Use a key without a table, or leave formerly= out"
    if facts.new_count:
        return (
            f"{new} has {count_of(facts.new_count, 'object')} that no move has copied. Use a key"
            " without files, or leave formerly= out"
        )
    if facts.problem:
        return facts.problem
    if facts.inner:
        return (
            f"its folder also has other tables: {first_names(facts.inner)}. Use keys outside of"
            f" {old} for them"
        )
    return _too_large(facts)


def _why_not_finished(facts: MoveFacts, record: MoveRecord) -> str:
    """Why the rest of the old folder must not be deleted; empty if it may be."""
    new_table = facts.new_table
    if new_table is not None and new_table[0] == record.table_id and new_table[1] >= record.version:
        return ""
    return (
        f"it was copied, but {facts.new_key} no longer has version {record.version} of the table"
        f" with the id {record.table_id}. {_RESTORE}"
    )


def _too_large(facts: MoveFacts) -> str:
    if facts.limit_bytes is None or facts.largest_bytes <= facts.limit_bytes:
        return ""
    return (
        f"the largest file has {size_text(facts.largest_bytes)}, but S3 copies files of at most"
        f" {size_text(facts.limit_bytes)}. Use the earlier key again, without formerly="
    )


def why_kept(facts: MoveFacts) -> str:
    """Why the old folder must be kept and what to do; empty if it can be deleted."""
    if not facts.borrowers:
        return ""
    return (
        f"{first_names(facts.borrowers)} may read files of {facts.old_key} (a shallow clone). Use"
        " --keep-old, which keeps the old folder"
    )
