"""Plans which archived files are deleted: those past their time, and those of restored rows.

Records are folded into one when none of their files is left, so that they do not grow for ever.
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

# The documents name this many files. A dry run in the terminal names all of them.
_PATHS = 1_000
# Records show people what an archive had, for this long after its files are gone.
_RECORD_DAYS = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireFacts:
    """What decides about the deletion of archived files.

    - `contents`: what the archive holds as of the table's version.
    - `operations`: all operations on the archive.
    - `stored`: the sizes of the files in the archive's folder, by name in the lake.
    - `keep_days`: for how long partitions are kept; `None` if the table declares no archive, so
      that none expires.
    """

    table: TableFacts
    contents: ArchiveContents
    operations: Sequence[ArchiveOperation]
    stored: Mapping[str, int]
    keep_days: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirePlan:
    """The archived files to delete now.

    - `expired`: the partitions past their time. They leave the archive.
    - `left`: the sizes of stored files that have left the archive, by name in the lake.
    - `next_ms`: when the next partition expires; `None` if none does.
    - `waits`: an operation was interrupted, and has to be settled first.
    """

    table: str
    version: int
    keep_days: int | None
    expired: tuple[ArchivedPartition, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict[str, int])
    next_ms: int | None = None
    waits: bool = False

    @property
    def files(self) -> Mapping[str, int]:
        """The sizes of all files to delete, by name in the lake."""
        expired = {file.archived: file.size_bytes for each in self.expired for file in each.files}
        return {**self.left, **expired}

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
                "nothing is deleted: an operation of the archive was interrupted. Use `lakehouse"
                f" archive run {self.table}`, which finishes it"
            )
        parts = list[str]()
        if self.expired:
            rows = sum(each.row_count for each in self.expired)
            parts.append(
                f"{count_of(len(self.values), 'partition')} ({rows:,} rows) archived at least"
                f" {self.keep_days} days ago"
            )
        if self.left:
            parts.append(f"{count_of(len(self.left), 'file')} of partitions that left the archive")
        if parts:
            what = f"{count_of(len(self.files), 'archived file')} ({size_text(self.size_bytes)})"
            return f"{what} are deleted: {' and '.join(parts)}"
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
    """What was deleted. `failed` maps files to why they were not; the next run tries again."""

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
        return f"deleted {deleted}; {len(self.failed)} could not be deleted, like {name}: {why}"

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
    """The archived files to delete at a time.

    A partition is kept for `keep_days` from the last time that rows of it were archived, so that
    all of it goes at once.
    """
    contents = facts.contents
    snapshot = facts.table.snapshot
    expires_ms = expiry_times(contents, facts.keep_days)
    waits = contents.unapplied is not None
    is_due = {values for values, ms in expires_ms.items() if ms <= now_ms}
    later_ms = [ms for ms in expires_ms.values() if ms > now_ms]
    expired = tuple(each for each in contents.partitions if each.partition in is_due)
    left = files_that_left(facts, now_ms=now_ms)
    return ExpirePlan(
        table=snapshot.table,
        version=snapshot.version,
        keep_days=facts.keep_days,
        expired=() if waits else expired,
        left={} if waits else {name: facts.stored[name] for name in sorted(left)},
        next_ms=min(later_ms, default=None),
        waits=waits,
    )


def expiry_times(contents: ArchiveContents, keep_days: int | None) -> dict[PartitionValues, int]:
    """When each archived partition expires; empty if none does."""
    times = dict[PartitionValues, int]()
    if keep_days is None:
        return times
    for each in contents.partitions:
        expires_ms = each.created_ms + keep_days * DAY_MS
        times[each.partition] = max(expires_ms, times.get(each.partition, 0))
    return times


def files_that_left(facts: ExpireFacts, *, now_ms: int) -> set[str]:
    """The stored files of partitions that have left the archive for good.

    They were expired, or restored into the table so long ago that no reader of an older version
    needs them. If the log no longer has the commit of the restore, the files stay.
    """
    snapshot = facts.table.snapshot
    retention_ms = retention_ms_of(snapshot.properties)
    left = set[str]()
    for operation in facts.operations:
        if operation.table_id != snapshot.table_id or operation.kind == "archive":
            continue
        is_old = retention_ms is not None and operation.created_ms + retention_ms <= now_ms
        if operation.kind == "expire" or (is_old and _is_known(operation, facts.table.history)):
            left |= {file.archived for file in operation.files}
    held = {file.archived for each in facts.contents.partitions for file in each.files}
    unapplied = facts.contents.unapplied
    held |= set() if unapplied is None else {file.archived for file in unapplied.files}
    return left.intersection(facts.stored) - held


def _is_known(restore: ArchiveOperation, history: Commits) -> bool:
    """Whether the log still has the commit of a restore, so that it is known to last."""
    return any(each.applications.get(APP_ID) == restore.number for each in history.commits)


def foldable_records(
    facts: ExpireFacts, *, older_than_days: int, oldest_version: int, now_ms: int
) -> Sequence[ArchiveOperation]:
    """The oldest operations, if two or more of them are not needed any more.

    Not needed: they are old, no file of theirs is stored or held, and the log has no version before
    the last of them, so no `RESTORE` can bring one back. Partitions that were restored stay in the
    table for `older_than_days`. `oldest_version` is the oldest one in the log.
    """
    contents = facts.contents
    held = {each.number for each in contents.partitions}
    until_ms = now_ms - max(_RECORD_DAYS, older_than_days) * DAY_MS
    folded = list[ArchiveOperation]()
    # A commit is at most at the version at which the next operation was planned.
    for operation, following in zip(facts.operations, facts.operations[1:], strict=False):
        is_stored = any(file.archived in facts.stored for file in operation.files)
        is_over = operation.created_ms <= until_ms and following.version <= oldest_version
        if is_stored or not is_over or operation.number in held:
            break
        folded.append(operation)
    is_waiting = contents.unapplied is not None
    return () if is_waiting or len(folded) == 1 else folded


def fold_records(operations: Sequence[ArchiveOperation], table_id: str) -> ArchiveOperation:
    """The record that stands for these operations, of which the last is the newest one."""
    of_table = [each for each in operations if each.table_id == table_id]
    moved = dict[PartitionValues, RecordedPartition]()
    for operation in of_table:
        for each in operation.partitions:
            if operation.kind == "restore":
                moved.pop(each.values, None)
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
