"""The retention of tables on the morning page: archives, TTLs and kept versions."""

from dataclasses import dataclass

from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.declaration.table import Table
from lakehouse.core.report.attention import Attention, Concern
from lakehouse.core.text import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedTable:
    """The retention rules of one table, the contents of its archive, and its kept versions.

    The archive's figures are `None` if the archive cannot be read or does not exist. The archived
    partitions span the time from `from_ms` to `until_ms` (exclusive). Both are also `None` if the
    archive is empty.
    """

    table: str
    rules: tuple[str, ...]
    has_archive: bool
    partition_count: int | None = None
    row_count: int | None = None
    size_bytes: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    kept_versions: tuple[str, ...] = ()


def retained_table(table: Table, contents: ArchiveContents | None) -> RetainedTable:
    """A table's retention. `contents`: `None` if there is no archive, or if it cannot be read."""
    partitions = () if contents is None else contents.partitions
    kept_versions = [
        f"version {number}, declared in keep_versions" for number in table.vacuum.keep_versions
    ]
    return RetainedTable(
        table=table.key,
        rules=_rules(table),
        has_archive=table.archive is not None or contents is not None,
        partition_count=None if contents is None else len({each.partition for each in partitions}),
        row_count=None if contents is None else contents.row_count,
        size_bytes=None if contents is None else contents.size_bytes,
        from_ms=min((each.start_ms for each in partitions), default=None),
        until_ms=max((each.end_ms for each in partitions), default=None),
        kept_versions=tuple(kept_versions),
    )


def attention_to_archive(table: str, contents: ArchiveContents | None) -> list[Attention]:
    """One entry if an operation on the table's archive was interrupted, otherwise none."""
    operation = None if contents is None else contents.unapplied
    if operation is None:
        return []
    sentence = (
        f"operation {operation.number} on the archive ({operation.kind}) was interrupted. The next "
        "run finishes or withdraws it"
    )
    return [
        Attention(
            concern=Concern.ARCHIVE,
            table=table,
            sentence=sentence,
            command=f"lakehouse archive run {table}",
        )
    ]


def _rules(table: Table) -> tuple[str, ...]:
    rules = list[str]()
    if table.archive is not None:
        older = count_of(table.archive.older_than_days, "day")
        kept = count_of(table.archive.keep_days, "day")
        rules.append(f"partitions move to the archive after {older}, and stay there for {kept}")
    if table.ttl is not None:
        days = count_of(table.ttl.days, "day")
        rules.append(f"rows are deleted {days} after their {table.ttl.column}")
    return tuple(rules)
