"""Plans an archive run: which partitions leave the table, how, at what cost, and why.

A partition may leave the table if it ends by the cutoff: `Archive.older_than_days` before now or,
with `clock="newest_row"`, before the newest row. The time of the newest row is the start of the
newest partition that is not in the future, so a row with a future time cannot empty the table.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakehouse.core.archive.archived_files import (
    MOST_FILES,
    count_of_one_run,
    files_by_partition,
    partition_folder,
    refuse_table,
    typed_in,
    why_rewritten,
)
from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.costs import ArchiveEstimate, estimate_move
from lakehouse.core.archive.partition_times import Span, partition_spans
from lakehouse.core.declaration.archive import Archive
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.partition_values import by_name, is_changed_by_rewrite
from lakehouse.core.delta.snapshot import DataFile, PartitionValues, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.text import count_of, first_names, size_text
from lakehouse.core.tiers.storage_class_costs import ClassPrices
from lakehouse.core.units import DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFacts:
    """A table and its archive, as of one version.

    - `read_whole_by`: the derived tables that read all rows of this table in every run.
    - `is_elsewhere`: whether the table lies outside the lake.
    - `classes`: the prices of S3's storage classes, by name; empty on a disk.
    """

    snapshot: Snapshot
    contents: ArchiveContents
    read_whole_by: tuple[str, ...] = ()
    is_elsewhere: bool = False
    classes: Mapping[str, ClassPrices] = field(default_factory=dict[str, ClassPrices])


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingPartition:
    """A partition that leaves the table.

    - `rewritten`: the reason why Spark must rewrite the rows. It is empty if the files are copied.
    - `is_late`: the rows arrived after the partition was archived.
    """

    values: PartitionValues
    span: Span
    files: tuple[DataFile, ...]
    rewritten: str = ""
    is_late: bool = False

    @property
    def row_count(self) -> int | None:
        """The number of rows that are not deleted; `None` if the log lacks statistics."""
        known = [file.row_count for file in self.files if file.row_count is not None]
        deleted_count = sum(file.deleted_row_count for file in self.files)
        return sum(known) - deleted_count if len(known) == len(self.files) else None

    @property
    def size_bytes(self) -> int:
        """Bytes of the files in the table."""
        return sum(file.size_bytes for file in self.files)

    @property
    def text(self) -> str:
        """The partition's folders, for example `event_date=2026-01-31/event_hour=5`."""
        return partition_folder(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlan(Explained):
    """The partitions that an archive run moves, and its predicted figures.

    - `number`: the number of the operation. If an operation was interrupted, its number is used
      again: to finish it, or for a new operation after it was withdrawn.
    - `bytes_leave_ms`: now plus the table's retention plus a day. By then, a daily vacuum should
      have deleted the moved files. `None` if the retention is unknown.
    """

    table: str
    version: int
    number: int
    cutoff_ms: int
    archive: Archive
    partitions: tuple[LeavingPartition, ...]
    estimate: ArchiveEstimate
    bytes_leave_ms: int | None
    notes: tuple[str, ...] = ()

    @property
    def file_count(self) -> int:
        """The number of files that leave the table."""
        return sum(len(each.files) for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files that leave the table."""
        return sum(each.size_bytes for each in self.partitions)

    @property
    def row_count(self) -> int | None:
        """The number of rows; `None` if the log lacks statistics."""
        return _row_count(self.partitions)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "number": self.number,
            "cutoff_ms": self.cutoff_ms,
            "storage_class": self.archive.storage_class,
            "partitions": [
                {
                    "values": dict(each.values),
                    "rows": each.row_count,
                    "files": len(each.files),
                    "bytes": each.size_bytes,
                    "rewritten": each.rewritten,
                    "late": each.is_late,
                }
                for each in self.partitions
            ],
            "files": self.file_count,
            "bytes": self.size_bytes,
            "rows": self.row_count,
            **self.estimate.as_json(),
            "bytes_leave_ms": self.bytes_leave_ms,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


def plan_archive(table: Table, facts: ArchiveFacts, *, now_ms: int) -> ArchivePlan:
    """The plan of an archive run, with the cutoff of an interrupted `archive` operation, if any.

    Raises:
        Refused: the table declares no archive, or cannot be archived (`refuse_table`).
    """
    archive = table.archive
    snapshot = facts.snapshot
    contents = facts.contents
    if archive is None:
        raise Refused(f"archive of {table.key}: none is declared. Use Table(archive=Archive(…))")
    refuse_table(snapshot)
    partitions = {file.partition for file in snapshot.files}
    # All starts, also of moved partitions, may determine the length of a partition.
    spans = partition_spans(table.key, snapshot.columns, partitions | contents.moved)
    in_table = {each: spans[each] for each in partitions}
    cutoff_ms = _cutoff_ms(archive, in_table, contents, now_ms)
    old = list[LeavingPartition]()
    notes = _Notes(archive)
    # Typed, because the log may spell the values of one partition in several ways.
    moved = {typed_in(snapshot, each) for each in contents.moved}
    restored_ms = {typed_in(snapshot, each): ms for each, ms in contents.restored_ms.items()}
    for typed, files in files_by_partition(snapshot).items():
        span = in_table[files[0].partition]
        if span is None or span.end_ms > cutoff_ms:
            continue
        partition = LeavingPartition(
            values=files[0].partition,
            span=span,
            files=files,
            rewritten=why_rewritten(files, snapshot, is_elsewhere=facts.is_elsewhere),
            is_late=typed in moved,
        )
        # In the archive, an empty string would become null, also in the folder of a copied file.
        if is_changed_by_rewrite(partition.values, by_name(snapshot.columns)):
            notes.with_empty_text.append(partition.text)
        elif restored_ms.get(typed, 0) + archive.older_than_days * DAY_MS > now_ms:
            notes.restored.append(partition.text)
        elif partition.is_late and archive.late != "append":
            notes.kept_late.append(partition.text)
        else:
            old.append(partition)
    in_order = sorted(old, key=lambda each: (each.span, str(each.values)))
    leaving = in_order[: count_of_one_run([len(each.files) for each in in_order])]
    notes.waiting_count = len(old) - len(leaving)
    moves = [(each.files, bool(each.rewritten)) for each in leaving]
    estimate = estimate_move(table.prices, moves, snapshot.properties, archive, facts.classes)
    return ArchivePlan(
        table=table.key,
        version=snapshot.version,
        number=contents.last_number if contents.unapplied else contents.last_number + 1,
        cutoff_ms=cutoff_ms,
        archive=archive,
        partitions=tuple(leaving),
        estimate=estimate,
        bytes_leave_ms=None if estimate.kept_ms is None else now_ms + estimate.kept_ms,
        notes=(*notes.of(leaving), *_notes_of_facts(facts, in_table, leaving)),
        explanation=_explanation(leaving, cutoff_ms),
    )


def _cutoff_ms(
    archive: Archive,
    spans: Mapping[PartitionValues, Span | None],
    contents: ArchiveContents,
    now_ms: int,
) -> int:
    unfinished = contents.unapplied
    if unfinished is not None and unfinished.kind == "archive":
        return unfinished.cutoff_ms
    clock_ms = now_ms
    if archive.clock == "newest_row":
        starts_ms = [span.start_ms for span in spans.values() if span is not None]
        clock_ms = max((each for each in starts_ms if each <= now_ms), default=now_ms)
    return clock_ms - archive.older_than_days * DAY_MS


def _explanation(leaving: Sequence[LeavingPartition], cutoff_ms: int) -> Explanation:
    if not leaving:
        what = "partition to archive"  # the notes name old partitions that stay, and why
        return Reason.NOTHING_PAST_THE_CUTOFF.explain(what=what, cutoff=cutoff_ms)
    row_count = _row_count(leaving)
    rows = "" if row_count is None else f"{row_count:,} rows in "
    files = count_of(sum(len(each.files) for each in leaving), "file")
    size = size_text(sum(each.size_bytes for each in leaving))
    partitions = count_of(len(leaving), "partition")
    verb = "moves" if len(leaving) == 1 else "move"
    return Reason.PAST_THE_CUTOFF.explain(
        what=f"{partitions} ({rows}{files}, {size}) {verb} to the archive", cutoff=cutoff_ms
    )


def _row_count(partitions: Sequence[LeavingPartition]) -> int | None:
    known = [each.row_count for each in partitions if each.row_count is not None]
    return sum(known) if len(known) == len(partitions) else None


class _Notes:
    """Collects the old partitions that stay in the table, by reason, and writes the notes."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.kept_late = list[str]()
        self.restored = list[str]()
        self.with_empty_text = list[str]()
        self.waiting_count = 0

    def of(self, leaving: Sequence[LeavingPartition]) -> Iterable[str]:
        """The notes about old partitions, both those that stay and those that are `leaving`."""
        if late := [each.text for each in leaving if each.is_late]:
            yield f"late rows join the archive: {first_names(late)}"
        if self.kept_late:
            yield (
                f"late rows stay in the table (Archive.late is {self._archive.late!r}):"
                f" {first_names(sorted(self.kept_late))}"
            )
        if self.restored:
            days = count_of(self._archive.older_than_days, "day")
            yield (
                f"restored partitions stay in the table for {days} after their restore:"
                f" {first_names(sorted(self.restored))}"
            )
        if self.with_empty_text:
            names = first_names(sorted(self.with_empty_text))
            yield f"partitions with an empty string stay in the table: {names}"
        if self.waiting_count:
            later = f"later runs move {count_of(self.waiting_count, 'newer partition')}"
            yield f"one run moves at most {MOST_FILES:,} files, or one partition; {later}"
        reasons = defaultdict[str, list[str]](list)
        for each in leaving:
            if each.rewritten:
                reasons[each.rewritten].append(each.text)
        for why, names in reasons.items():
            yield f"Spark rewrites the rows of {first_names(names)}: {why}"


def _notes_of_facts(
    facts: ArchiveFacts,
    spans: Mapping[PartitionValues, Span | None],
    leaving: Sequence[LeavingPartition],
) -> Iterable[str]:
    if (unapplied := facts.contents.unapplied) is not None:
        verb = "finishes or withdraws" if unapplied.kind == "archive" else "withdraws"
        yield f"operation {unapplied.number} ({unapplied.kind}) was interrupted: this run {verb} it"
    if facts.read_whole_by and leaving:
        names = first_names(facts.read_whole_by)
        yield f"tables that read all rows of this table no longer read these rows: {names}"
    without_time = sorted(partition_folder(each) for each, span in spans.items() if span is None)
    if without_time:
        yield f"partitions without a time stay in the table: {first_names(without_time)}"
    if leaving and not facts.snapshot.on_s3:
        yield "the archive is on this disk: Archive.storage_class has no effect"
