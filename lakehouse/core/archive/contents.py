"""The contents of a table's archive at one version of the table.

They are computed from the records of all operations on the archive (`records.py`).
"""

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
from lakehouse.core.text import count_of, first_names


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """The files of one partition that one operation archived.

    If rows arrived after a partition was archived, and were archived later, the partition has
    several entries. `number` is the number of the operation. `created_ms` is the time of the
    operation's record or of its commit, whichever is later; if the log no longer has the commit, it
    is the record's. `end_ms` is exclusive. `names` and `field_names` are copied from the operation.
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
        """The partition as the record of a later operation lists it."""
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
    """The contents of a table's archive, as of one version of the table.

    - `partitions`: the archived partitions, in the order of their operations.
    - `moved`: the partitions that were archived and not restored afterwards, including expired
      partitions, whose files no longer exist.
    - `restored_ms`: when each restored partition was last restored into its table.
    - `unapplied`: an operation that was recorded, but is not part of this version, or `None`.
    - `last_number`: the number of the newest operation, or 0.
    - `file_names`: the names of all files in the records, including files that no longer exist.
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
    """The contents of the archive as of a snapshot.

    `operations` are all operations that are recorded for the table's key, in any order. Operations
    of an earlier, deleted table with the same key are ignored. `applied_ms` maps the number of each
    operation whose commit is still in the log to the time of that commit.

    Raises:
        Broken: a record is missing, so the contents of the archive are unknown. Or the table again
            has files that an operation moved out, so rows may be in two places.
    """
    in_order = sorted(operations, key=lambda each: each.number)
    _refuse_gaps(in_order, snapshot)
    last_applied = snapshot.transactions.get(APP_ID, 0)
    in_archive: dict[tuple[int, PartitionValues], ArchivedPartition] = {}
    restored_ms = dict[PartitionValues, int]()
    moved = set[PartitionValues]()
    moved_out_paths = set[str]()
    unapplied: ArchiveOperation | None = None
    for operation in in_order:
        if operation.table_id != snapshot.table_id:
            continue
        if operation.kind == "folded":  # all archived files before it are deleted
            moved |= {each.values for each in operation.partitions}
            continue
        if operation.kind != "expire" and operation.number > last_applied:
            unapplied = operation  # the only one: it is finished or withdrawn before the next
            continue
        if operation.kind == "archive":
            created_ms = max(operation.created_ms, (applied_ms or {}).get(operation.number, 0))
            archived = _archived(operation, created_ms)
            in_archive |= {(operation.number, each.partition): each for each in archived}
            moved |= {each.values for each in operation.partitions}
            moved_out_paths |= operation.sources
            continue
        # A restore or an expire: its files are no longer part of the archive.
        in_archive = _without({file.archived for file in operation.files}, in_archive)
        if operation.kind == "restore":
            restored = {each.values for each in operation.partitions}
            restored_ms |= dict.fromkeys(restored, operation.created_ms)
            moved -= restored
    _refuse_brought_back(snapshot, moved_out_paths)
    return ArchiveContents(
        partitions=tuple(in_archive.values()),
        moved=frozenset(moved),
        restored_ms=restored_ms,
        unapplied=unapplied,
        last_number=in_order[-1].number if in_order else 0,
        file_names=frozenset(file.archived for each in in_order for file in each.files),
    )


def refuse_undone(history: Commits) -> None:
    """Raises an error if another program's RESTORE undid an operation on the table's archive.

    Delta's RESTORE brings back files, but not the versions of `txn` actions, so an undone operation
    still counts as applied. A person repairs the table in a later commit. That commit settles the
    operation if its userMetadata has `rows_moved` and the number, like the operation's own commit.

    Raises:
        Broken: an operation was undone, so its rows are in two places or nowhere.
    """
    applied = frozenset[int]()
    in_effect = frozenset[int]()  # the applied operations that no RESTORE undid
    in_effect_at = dict[int, frozenset[int]]()  # by version
    undone_by = 0
    for commit in history.commits:
        number = commit.applications.get(APP_ID)
        if commit.operation == "RESTORE":
            version = commit.parameters.get("version", "")
            restored_version = int(version) if version.isdigit() else -1
            # If the version is unknown, or older than the log, no operation is in effect.
            in_effect = in_effect_at.get(restored_version, frozenset[int]())
        elif number is not None:
            applied = applied | {number}
            in_effect = in_effect | {number}
        elif applied != in_effect and moves_rows(commit):
            settled = written_in(commit).get("number")
            in_effect |= {each for each in applied if each == settled}
        in_effect_at[commit.version] = in_effect
        if applied == in_effect:
            undone_by = 0
        elif undone_by == 0:
            undone_by = commit.version
    if undone := sorted(applied - in_effect):
        number = undone[0]
        raise Broken(
            f"archive of {history.table}: version {undone_by} is a RESTORE of a version before"
            f" operation {number} of the archive, so rows are in two places or nowhere. If version"
            f" {undone_by} is the newest version, use RESTORE to version {undone_by - 1}."
            f" Otherwise: (1) Read _lakehouse/archives/{history.table}/{number:010}.json: it names"
            " the operation's kind and its archived files (key `archived`)."
            " (2) If the kind is archive, remove from the table the rows that are also in these"
            " files. If the kind is restore, append to the table the rows of these files that the"
            " table lacks. (3) Write these changes in one commit with the userMetadata"
            f' {{"rows_moved":"archive","number":{number}}}, which settles the operation'
        )


def _archived(operation: ArchiveOperation, created_ms: int) -> Iterable[ArchivedPartition]:
    for each in operation.partitions:
        yield ArchivedPartition(
            number=operation.number,
            created_ms=created_ms,
            storage_class=operation.storage_class,
            partition=each.values,
            start_ms=each.start_ms,
            end_ms=each.end_ms,
            files=each.files,
            names=operation.names,
            field_names=operation.field_names,
        )


def _without(
    names: set[str], partitions: Mapping[tuple[int, PartitionValues], ArchivedPartition]
) -> dict[tuple[int, PartitionValues], ArchivedPartition]:
    """The partitions without the named files. A partition that keeps no file is omitted."""
    kept = dict[tuple[int, PartitionValues], ArchivedPartition]()
    for key, each in partitions.items():
        files = tuple(file for file in each.files if file.archived not in names)
        if len(files) == len(each.files):
            kept[key] = each
        elif files:
            kept[key] = replace(each, files=files)
    return kept


def _refuse_gaps(in_order: list[ArchiveOperation], snapshot: Snapshot) -> None:
    """Refuses records whose numbers have gaps, or end before the last applied operation."""
    numbers = [each.number for each in in_order]
    # A folded record replaces all earlier ones.
    first = numbers[0] if in_order and in_order[0].kind == "folded" else 1
    expected = max(numbers[-1] if numbers else 0, snapshot.transactions.get(APP_ID, 0))
    if numbers != [*range(first, expected + 1)]:
        missing = sorted({*range(first, expected + 1)} - {*numbers})
        names = first_names([f"{number:010}.json" for number in missing])
        raise Broken(
            f"archive of {snapshot.table}: the folder _lakehouse/archives/{snapshot.table}/ lacks"
            f" {count_of(len(missing), 'record')} ({names}), so the contents of the archive are"
            " unknown. Copy the missing records into this folder from a backup of the lake"
        )


def _refuse_brought_back(snapshot: Snapshot, moved_out_paths: set[str]) -> None:
    if not moved_out_paths:
        return
    back = sorted(moved_out_paths.intersection(file.path for file in snapshot.files))
    if back:
        raise Broken(
            f"archive of {snapshot.table}: version {snapshot.version} again has"
            f" {count_of(len(back), 'file')} that an operation moved to the archive, for example"
            f" {first_names(back, most=1)}. An older version of the table was restored, so rows may"
            " be in two places. Compare each such file with its archived file. In the table, delete"
            " only the rows that are in both. Keep all other rows of these partitions: only the"
            " table has them"
        )
