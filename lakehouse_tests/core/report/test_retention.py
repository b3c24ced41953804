"""Archives, TTLs and kept versions on the morning page."""

from lakehouse import Append, Archive, Landing, Table, Ttl, Vacuum
from lakehouse.core.archive.contents import ArchiveContents, ArchivedPartition
from lakehouse.core.archive.records import ArchivedFile, ArchiveOperation
from lakehouse.core.report.retention import attention_to_archive, retained_table
from lakehouse.core.units import DAY_MS

DAYS = Table(
    key="bronze/days",
    source=Landing(prefix="landing/days/", format="json", schema="id STRING, d DATE"),
    write=Append(partition_by=("d",)),
    archive=Archive(older_than_days=31, keep_days=183),
    ttl=Ttl(column="d", days=400),
    vacuum=Vacuum(keep_versions=(12,)),
)


def partition(number: int, day: int) -> ArchivedPartition:
    file = ArchivedFile(source="s", archived=f"archive/{number}", size_bytes=10, row_count=7)
    return ArchivedPartition(
        number=number,
        created_ms=0,
        storage_class="STANDARD_IA",
        partition=(("d", str(day)),),
        start_ms=day * DAY_MS,
        end_ms=(day + 1) * DAY_MS,
        files=(file,),
    )


def test_an_archive_is_shown_by_its_partitions() -> None:
    # A partition that got late rows is archived twice, and is one partition.
    contents = ArchiveContents(partitions=(partition(1, 3), partition(1, 4), partition(2, 4)))
    shown = retained_table(DAYS, contents)
    assert (shown.partition_count, shown.row_count, shown.size_bytes) == (2, 21, 30)
    assert (shown.from_ms, shown.until_ms) == (3 * DAY_MS, 5 * DAY_MS)
    assert shown.rules == (
        "partitions move to the archive after 31 days, and stay there for 183 days",
        "rows are deleted 400 days after their d",
    )
    assert shown.kept_versions == ("version 12, declared in keep_versions",)


def test_an_archive_that_cannot_be_read_is_unknown_and_not_empty() -> None:
    shown = retained_table(DAYS, None)
    assert (shown.has_archive, shown.row_count, shown.size_bytes) == (True, None, None)
    empty = retained_table(DAYS, ArchiveContents())
    assert (empty.row_count, empty.from_ms) == (0, None)


def test_an_interrupted_operation_needs_a_run() -> None:
    operation = ArchiveOperation(
        number=4,
        kind="archive",
        table_id="t",
        version=1,
        created_ms=0,
        cutoff_ms=0,
        storage_class="STANDARD",
        partitions=(),
    )
    [line] = attention_to_archive("bronze/days", ArchiveContents(unapplied=operation))
    assert "operation 4 on the archive (archive) was interrupted" in line.sentence
    assert line.command == "lakehouse archive run bronze/days"
    assert attention_to_archive("bronze/days", ArchiveContents()) == []
