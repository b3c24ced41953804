"""The request, the plan and the outcome of a restore from a table's archive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakehouse.core.archive.contents import ArchivedPartition
from lakehouse.core.delta.snapshot import PartitionValues
from lakehouse.core.text import count_of, size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRequest:
    """Selects the partitions of an archive to restore, and the table that gets their rows.

    - `target`: the address of a new table; empty for the table itself.
    - `values`: selects partitions with any of these combinations of values; empty selects all.
    - `since_ms`, `until_ms`: selects partitions whose whole time span (`partition_times`) lies
      between these times. `until_ms` is exclusive. `None`: no limit.
    """

    target: str = ""
    values: Sequence[Mapping[str, str]] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    def includes(self, partition: ArchivedPartition) -> bool:
        """Whether the request selects this partition."""
        values = dict(partition.partition).items()
        if self.values and not any(each.items() <= values for each in self.values):
            return False
        if self.since_ms is not None and partition.start_ms < self.since_ms:
            return False
        return self.until_ms is None or partition.end_ms <= self.until_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """A planned restore: the partitions to read, as of a version of the table, and the target.

    `stays_days`: for how many days after the restore the archive leaves a restored partition in its
    table; `None` if the table declares no archive.
    """

    table: str
    version: int
    target: str
    partitions: tuple[ArchivedPartition, ...]
    stays_days: int | None

    @property
    def file_count(self) -> int:
        """The number of archived files to read."""
        return sum(len(each.files) for each in self.partitions)

    @property
    def row_count(self) -> int:
        """The number of rows to restore."""
        return sum(each.row_count for each in self.partitions)

    @property
    def size_bytes(self) -> int:
        """Bytes of the archived files."""
        return sum(each.size_bytes for each in self.partitions)

    @property
    def values(self) -> tuple[PartitionValues, ...]:
        """The partitions, each once."""
        return tuple(dict.fromkeys(each.partition for each in self.partitions))

    @property
    def sentence(self) -> str:
        """The plan in words."""
        if not self.partitions:
            list_all = f"lakehouse archive list {self.table}"
            return f"nothing to restore: the archive has no such partition. Use {list_all}"
        what = (
            f"{count_of(len(self.values), 'partition')} of the archive ({self.row_count:,} rows in"
            f" {count_of(self.file_count, 'file')}, {size_text(self.size_bytes)})"
        )
        if self.target:
            return f"copies {what} into a new table at {self.target}; the archive does not change"
        return f"moves {what} back into the table, in one commit"

    @property
    def notes(self) -> tuple[str, ...]:
        """The consequences of a restore into the table itself."""
        if self.target or not self.partitions:
            return ()
        notes = ["only downstream tables that read all rows in each run read the restored rows"]
        if self.stays_days is not None:
            days = count_of(self.stays_days, "day")
            notes.append(
                f"the archive leaves restored partitions in the table for {days}"
                " (Archive.older_than_days), and then moves them again"
            )
        return tuple(notes)

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape."""
        return {
            "table": self.table,
            "version": self.version,
            "target": self.target or None,
            "partitions": [{"values": dict(each)} for each in self.values],
            "files": self.file_count,
            "bytes": self.size_bytes,
            "rows": self.row_count,
            "sentence": self.sentence,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOutcome:
    """The result of a restore. `version_after` is `None` if there was nothing to restore."""

    plan: RestorePlan
    version_after: int | None
    seconds: float

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        if self.version_after is None:
            return self.plan.sentence
        table = self.plan.target or self.plan.table
        return (
            f"restored {self.plan.row_count:,} rows of"
            f" {count_of(len(self.plan.values), 'partition')} in version {self.version_after} of"
            f" {table}, in {self.seconds:.1f} s"
        )

    def as_json(self) -> dict[str, Any]:
        """The documented JSON shape: the plan's, and what was done."""
        return {
            **self.plan.as_json(),
            "sentence": self.sentence,
            "version_after": self.version_after,
            "seconds": round(self.seconds, 3),
        }
