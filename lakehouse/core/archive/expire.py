"""Plans the deletion of archived files whose partitions expired, or whose rows were restored.

Old records of operations whose files were all deleted are folded into one record, so that the
number of records stays small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse.core.archive.contents import ArchiveContents, ArchivedPartition
from lakehouse.core.archive.records import APP_ID, ArchiveOperation, RecordedPartition
from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import PartitionValues, TableFacts
from lakehouse.core.text import count_of, size_text, utc_text
from lakehouse.core.units import DAY_MS

# Each list of files in a JSON document has at most this many. The terminal names all files.
_PATHS = 1_000
# A record is kept for at least this long, so that people can look up what its operation moved.
_RECORD_DAYS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireFacts:
    """The facts that decide which archived files are deleted.

    - `contents`: the contents of the archive as of the table's version.
    - `operations`: all operations on the archive, in ascending order of their numbers.
    - `stored`: the sizes of the files in the archive's folder, by name in the lake.
    - `keep_days`: how long partitions are kept; `None` if the table declares no archive, so that
      no partition expires.
    """

    table: TableFacts
    contents: ArchiveContents
    operations: Sequence[ArchiveOperation]
    stored: Mapping[str, int]
    keep_days: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirePlan:
    """The archived files to delete now.

    - `expired`: the expired partitions, which this run removes from the archive.
    - `unarchived`: the stored files of partitions that an earlier operation removed from the
      archive. Maps names in the lake to sizes.
    - `next_ms`: when the next partition expires; `None` if no partition expires later.
    - `waits`: nothing is deleted, because an interrupted operation must first be finished or
      withdrawn.
    """

    table: str
    version: int
    keep_days: int | None
    expired: tuple[ArchivedPartition, ...] = ()
    unarchived: Mapping[str, int] = field(default_factory=dict[str, int])
    next_ms: int | None = None
    waits: bool = False

    @property
    def files(self) -> Mapping[str, int]:
        """The sizes of all files to delete, by name in the lake."""
        expired = {file.archived: file.size_bytes for each in self.expired for file in each.files}
        return {**self.unarchived, **expired}

    @property
    def size_bytes(self) -> int:
        """Bytes of the files to delete."""
        return sum(self.files.values())

    @property
    def values(self) -> tuple[PartitionValues, ...]:
        """The expired partitions, each once."""
        return tuple(dict.fromkeys(each.partition for each in self.expired))

    @property
    def sentence(self) -> str:
        """The plan in words."""
        if self.waits:
            return (
                "nothing is deleted: an operation on the archive was interrupted. Use `lakehouse"
                f" archive run {self.table}`, which finishes or withdraws it"
            )
        parts = list[str]()
        if self.expired:
            rows = sum(each.row_count for each in self.expired)
            parts.append(
                f"{count_of(len(self.values), 'partition')} ({rows:,} rows) archived at least"
                f" {self.keep_days} days ago"
            )
        if self.unarchived:
            files = count_of(len(self.unarchived), "file")
            parts.append(f"{files} that an earlier operation removed from the archive")
        if parts:
            what = f"{count_of(len(self.files), 'archived file')} ({size_text(self.size_bytes)})"
            return f"{what} to delete: {' and '.join(parts)}"
        if self.next_ms is None:
            return "nothing to delete: no archived partition expires"
        return f"nothing to delete: the next partition expires on {utc_text(self.next_ms)}"

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "partitions": [{"values": dict(each)} for each in self.values],
            "files": len(self.files),
            "bytes": self.size_bytes,
            "rows": sum(each.row_count for each in self.expired),
            "paths": [*self.files][:_PATHS],
            "next_expires_ms": self.next_ms,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOutcome:
    """What was deleted.

    `failed` maps each file that could not be deleted to the reason. The next run tries again.
    """

    plan: ExpirePlan
    deleted_files: int = 0
    deleted_bytes: int = 0
    failed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if not self.plan.files or self.plan.waits:
            return self.plan.sentence
        deleted = (
            f"{count_of(self.deleted_files, 'archived file')} ({size_text(self.deleted_bytes)})"
        )
        if not self.failed:
            return f"deleted {deleted}"
        name, why = next(iter(self.failed.items()))
        failed = count_of(len(self.failed), "file")
        return f"deleted {deleted}; {failed} could not be deleted, for example {name}: {why}"

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape: the plan's, and what was done."""
        return {
            **self.plan.as_json(),
            "sentence": self.sentence,
            "actual_files": self.deleted_files,
            "actual_bytes": self.deleted_bytes,
            "failed": dict([*self.failed.items()][:_PATHS]),
        }


def plan_expire(facts: ExpireFacts, *, now_ms: int) -> ExpirePlan:
    """Plans which archived files to delete at `now_ms`.

    All files of a partition expire together, `keep_days` after rows of it were last archived. While
    an operation is interrupted, nothing is deleted.
    """
    contents = facts.contents
    snapshot = facts.table.snapshot
    expires_ms = expiry_times(contents, facts.keep_days)
    plan = ExpirePlan(
        table=snapshot.table,
        version=snapshot.version,
        keep_days=facts.keep_days,
        next_ms=min((ms for ms in expires_ms.values() if ms > now_ms), default=None),
    )
    if contents.unapplied is not None:
        return replace(plan, waits=True)
    due = {values for values, ms in expires_ms.items() if ms <= now_ms}
    unarchived = sorted(unarchived_files(facts, now_ms=now_ms))
    return replace(
        plan,
        expired=tuple(each for each in contents.partitions if each.partition in due),
        unarchived={name: facts.stored[name] for name in unarchived},
    )


def expiry_times(contents: ArchiveContents, keep_days: int | None) -> dict[PartitionValues, int]:
    """When each archived partition expires; empty if `keep_days` is `None`."""
    times = dict[PartitionValues, int]()
    if keep_days is None:
        return times
    for each in contents.partitions:
        expires_ms = each.created_ms + keep_days * DAY_MS
        times[each.partition] = max(expires_ms, times.get(each.partition, 0))
    return times


def unarchived_files(facts: ExpireFacts, *, now_ms: int) -> set[str]:
    """The stored files that are no longer part of the archive, and that no reader needs.

    The files of an `expire` operation are included at once. The files of a restore are included
    after the table's retention, because a reader of a version before the restore may need them for
    that long. They are not included if the retention is unknown, or if the restore's commit is not
    in the history.
    """
    snapshot = facts.table.snapshot
    retention_ms = retention_ms_of(snapshot.properties)
    unarchived = set[str]()
    for operation in facts.operations:
        if operation.table_id != snapshot.table_id or operation.kind == "archive":
            continue
        is_old = retention_ms is not None and operation.created_ms + retention_ms <= now_ms
        was_restored_long_ago = is_old and _has_commit_of(operation, facts.table.history)
        if operation.kind == "expire" or was_restored_long_ago:
            unarchived |= {file.archived for file in operation.files}
    in_archive = {file.archived for each in facts.contents.partitions for file in each.files}
    unarchived = unarchived.intersection(facts.stored) - in_archive
    unapplied = facts.contents.unapplied
    if unapplied is not None:
        unarchived -= {file.archived for file in unapplied.files}
    return unarchived


def _has_commit_of(restore: ArchiveOperation, history: Commits) -> bool:
    """Whether the history still has the commit of this restore.

    If so, the history also has all later commits, and `refuse_undone` has checked that none of them
    is a Delta RESTORE that undid this operation.
    """
    return any(each.applications.get(APP_ID) == restore.number for each in history.commits)


def foldable_records(
    facts: ExpireFacts, *, older_than_days: int, oldest_version: int, now_ms: int
) -> Sequence[ArchiveOperation]:
    """The oldest operations whose records are no longer needed; empty if fewer than two.

    The newest record is always kept. While an operation is interrupted, the result is empty. Any
    other record of an operation is no longer needed if

    - it is older than `_RECORD_DAYS`, and older than `older_than_days`, because restored partitions
      stay in the table for that long,
    - none of the operation's files is stored, and no partition in the archive comes from it, and
    - the log begins at the operation's commit or later, so that no `RESTORE` can undo it.
      `oldest_version` is the oldest version in the log.
    """
    contents = facts.contents
    numbers_in_archive = {each.number for each in contents.partitions}
    until_ms = now_ms - max(_RECORD_DAYS, older_than_days) * DAY_MS
    folded = list[ArchiveOperation]()
    # Stops at the first record that is needed. The newest operation has no following one.
    for operation, following in zip(facts.operations, facts.operations[1:], strict=False):
        is_stored = any(file.archived in facts.stored for file in operation.files)
        is_old = operation.created_ms <= until_ms
        # A record lacks the version of its own commit. The following operation was planned at that
        # version or later.
        cannot_be_undone = following.version <= oldest_version
        is_needed = is_stored or operation.number in numbers_in_archive
        if is_needed or not is_old or not cannot_be_undone:
            break
        folded.append(operation)
    is_interrupted = contents.unapplied is not None
    return () if is_interrupted or len(folded) == 1 else folded


def fold_records(operations: Sequence[ArchiveOperation], table_id: str) -> ArchiveOperation:
    """The record that replaces the records of these operations, given in ascending order."""
    of_table = [each for each in operations if each.table_id == table_id]
    moved = dict[PartitionValues, RecordedPartition]()
    for operation in of_table:
        for each in operation.partitions:
            if operation.kind == "restore":
                moved.pop(each.values, None)
            # As in `fold_archive`, an expired partition still counts as moved.
            elif operation.kind != "expire":
                moved[each.values] = replace(each, files=(), rewritten=())
    cutoffs_ms = [each.cutoff_ms for each in of_table if each.kind in ("archive", "folded")]
    return ArchiveOperation(
        number=operations[-1].number,
        kind="folded",
        table_id=table_id,
        version=operations[-1].version,
        created_ms=operations[-1].created_ms,
        cutoff_ms=max(cutoffs_ms, default=0),
        storage_class="",
        partitions=tuple(moved.values()),
    )
