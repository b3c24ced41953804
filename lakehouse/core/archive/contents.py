"""The contents of a table's archive at one version of the table, folded from its operations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lakehouse.core.archive.records import (
    APP_ID,
    ArchivedFile,
    ArchiveOperation,
    RecordedPartition,
)
from lakehouse.core.delta.commits import Commits, moves_rows, written_in
from lakehouse.core.delta.snapshot import FieldPath, PartitionValues, Snapshot
from lakehouse.core.errors import Broken
from lakehouse.core.text import first_names


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """The files that one operation archived of one partition.

    A partition that got late rows has several entries. `number` is the operation. `created_ms` is
    the time of its record, or of its commit if that is known and later. `names` and `field_names`
    are those of the operation.
    """

    number: int
    created_ms: int
    storage_class: str
    partition: PartitionValues
    start_ms: int
    end_ms: int
    files: tuple[ArchivedFile, ...]
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    field_names: Mapping[FieldPath, str] = field(default_factory=dict[FieldPath, str])

    @property
    def recorded(self) -> RecordedPartition:
        """The partition as the record of a later operation names it."""
        return RecordedPartition(
            values=self.partition,
            start_ms=self.start_ms,
            end_ms=self.end_ms,
            files=self.files,
        )

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(file.row_count for file in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the archived files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveContents:
    """What a table's archive holds, as of one version of the table.

    - `partitions`: in the order in which they were archived.
    - `moved`: the partitions that were moved and not restored since, whether or not their files
      still exist.
    - `restored_ms`: when a partition was last restored into its table.
    - `unapplied`: the operation that was recorded, but is not part of this version.
    - `last_number`: the number of the newest operation, 0 if there was none.
    - `file_names`: the names of all files in records, whether or not they exist.
    """

    partitions: tuple[ArchivedPartition, ...] = ()
    moved: frozenset[PartitionValues] = frozenset()
    restored_ms: Mapping[PartitionValues, int] = field(default_factory=dict[PartitionValues, int])
    unapplied: ArchiveOperation | None = None
    last_number: int = 0
    file_names: frozenset[str] = frozenset()

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return sum(each.row_count for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of the archived files."""
        return sum(each.size_bytes for each in self.partitions)


def fold_archive(
    operations: Iterable[ArchiveOperation],
    snapshot: Snapshot,
    applied_ms: Mapping[int, int] | None = None,
) -> ArchiveContents:
    """What the archive holds as of a snapshot. `operations` are all of the table's key.

    `applied_ms` are the times of their commits, by number, as far as the log still has them.

    Operations of an earlier table under the same key do not count: that table was deleted.

    Raises:
        Broken: a record is missing, so that what the archive holds is unknown. Or the table has
            files again that an operation moved out, so that their rows would be in two places.
    """
    in_order = sorted(operations, key=lambda each: each.number)
    _refuse_gaps(in_order, snapshot)
    applied_number = snapshot.transactions.get(APP_ID, 0)
    held: dict[tuple[int, PartitionValues], ArchivedPartition] = {}
    restored_ms = dict[PartitionValues, int]()
    moved = set[PartitionValues]()
    left = set[str]()
    unapplied: ArchiveOperation | None = None
    for operation in in_order:
        if operation.table_id != snapshot.table_id:
            continue
        if operation.kind == "folded":
            moved |= {each.values for each in operation.partitions}
            continue
        if operation.kind != "expire" and operation.number > applied_number:
            unapplied = operation
            continue
        if operation.kind == "archive":
            since_ms = max(operation.created_ms, (applied_ms or {}).get(operation.number, 0))
            archived = _archived(operation, since_ms)
            held |= {(operation.number, each.partition): each for each in archived}
            moved |= {each.values for each in operation.partitions}
            left |= operation.sources
            continue
        held = _without({file.archived for file in operation.files}, held)
        if operation.kind == "restore":
            restored = {each.values for each in operation.partitions}
            restored_ms |= dict.fromkeys(restored, operation.created_ms)
            moved -= restored
    _refuse_brought_back(snapshot, left)
    return ArchiveContents(
        partitions=tuple(held.values()),
        moved=frozenset(moved),
        restored_ms=restored_ms,
        unapplied=unapplied,
        last_number=in_order[-1].number if in_order else 0,
        file_names=frozenset(file.archived for each in in_order for file in each.files),
    )


def refuse_undone(history: Commits) -> None:
    """Refuses a table if another program's RESTORE undid an operation on its archive.

    A RESTORE brings back files, and no transaction ids, so the operation still counts as applied.
    A later commit settles it if its userMetadata is that of the operation's own commit.

    Raises:
        Broken: rows of the operation are in two places, or in none.
    """
    applied = frozenset[int]()
    now = frozenset[int]()
    undone_by = 0
    by_version = dict[int, frozenset[int]]()
    for commit in history.commits:
        number = commit.applications.get(APP_ID)
        if commit.operation == "RESTORE":
            version = commit.parameters.get("version", "")
            restored = int(version) if version.isdigit() else -1
            now = by_version.get(restored, frozenset[int]())
        elif number is not None:
            applied = applied | {number}
            now = now | {number}
        elif applied != now and moves_rows(commit):
            settled = written_in(commit).get("number")
            now |= {each for each in applied if each == settled}
        by_version[commit.version] = now
        undone_by = (undone_by or commit.version) if applied != now else 0
    if undone := sorted(applied - now):
        raise Broken(
            f"archive of {history.table}: version {undone_by}, a RESTORE, brought back a version"
            f" before operation {undone[0]} of the archive, so rows are in two places, or in none."
            f" If nothing was written since, use RESTORE to version {undone_by - 1}. Otherwise"
            " compare the partitions that"
            f" _lakehouse/archives/{history.table}/{undone[0]:010}.json names with its archived"
            " files. Delete, in the table, only rows that are in both, or append those that are in"
            ' neither, in one commit with the userMetadata {"rows_moved":"archive","number":'
            f"{undone[0]}}}, which settles it"
        )


def _archived(operation: ArchiveOperation, since_ms: int) -> Iterable[ArchivedPartition]:
    for each in operation.partitions:
        yield ArchivedPartition(
            number=operation.number,
            created_ms=since_ms,
            storage_class=operation.storage_class,
            partition=each.values,
            start_ms=each.start_ms,
            end_ms=each.end_ms,
            files=each.files,
            names=operation.names,
            field_names=operation.field_names,
        )


def _without(
    names: set[str], held: Mapping[tuple[int, PartitionValues], ArchivedPartition]
) -> dict[tuple[int, PartitionValues], ArchivedPartition]:
    """The partitions without the named files; a partition without any file is dropped."""
    kept = dict[tuple[int, PartitionValues], ArchivedPartition]()
    for key, each in held.items():
        files = tuple(file for file in each.files if file.archived not in names)
        if len(files) == len(each.files):
            kept[key] = each
        elif files:
            kept[key] = replace(each, files=files)
    return kept


def _refuse_gaps(in_order: list[ArchiveOperation], snapshot: Snapshot) -> None:
    numbers = [each.number for each in in_order]
    first = numbers[0] if in_order and in_order[0].kind == "folded" else 1
    expected = max(numbers[-1] if numbers else 0, snapshot.transactions.get(APP_ID, 0))
    if numbers != [*range(first, expected + 1)]:
        missing = sorted({*range(first, expected + 1)} - {*numbers})
        raise Broken(
            f"archive of {snapshot.table}: the records of its operations"
            f" {first_names([*map(str, missing)])} are missing, so what it holds is unknown."
            f" Restore them below _lakehouse/archives/{snapshot.table}/ from a copy of the lake"
        )


def _refuse_brought_back(snapshot: Snapshot, left: set[str]) -> None:
    if not left:
        return
    back = sorted(left.intersection(file.path for file in snapshot.files))
    if back:
        raise Broken(
            f"archive of {snapshot.table}: version {snapshot.version} has {len(back)} file(s) again"
            f" that the archive took, like {first_names(back, most=1)}: somebody brought back an"
            " older version of the table, and their rows may be in two places. Compare each with"
            " its archived file, and delete, in the table, only the rows that are in both:"
            " rows that were loaded into these partitions since are in the table alone"
        )
