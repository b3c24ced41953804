"""Which partitions leave, why others stay, how their files become plain Parquet, and what that costs."""

from dataclasses import replace
from typing import Any

import pytest

from lakehouse import Append, Archive, Landing, Table
from lakehouse.core.archive import archived_files
from lakehouse.core.archive import plan as plan_module
from lakehouse.core.archive.archived_files import (
    ArchivedNames,
    field_names_in_files,
    names_in_files,
    partition_folder,
    values_in_folders,
)
from lakehouse.core.archive.contents import ArchiveContents
from lakehouse.core.archive.plan import ArchiveFacts, ArchivePlan, plan_archive
from lakehouse.core.archive.records import ArchiveOperation
from lakehouse.core.delta.snapshot import Column, DataFile, LogTail, PartitionValues, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Reason
from lakehouse.core.tiers.storage_class_costs import ClassPrices
from lakehouse_tests.core.archive.test_partition_times import span_text

DAY_MS = 86_400_000
# The first moment of 11 January 2026.
NOW = 1_768_089_600_000
COLUMNS = (Column(name="id", type="bigint"), Column(name="day", type="date"))
TABLE = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id BIGINT, day DATE"),
    write=Append(partition_by=("day",)),
    archive=Archive(older_than_days=3),
)


def file(day: str | None, name: str = "f", **more: Any) -> DataFile:
    return DataFile(
        path=f"day={day}/{name}",
        partition=(("day", day),),
        **{"size_bytes": 1_000, "modified_ms": NOW, "row_count": 10, **more},
    )


def snapshot(*files: DataFile, **more: Any) -> Snapshot:
    return Snapshot(
        **{
            "table": "bronze/orders",
            "uri": "/lake/bronze/orders",
            "version": 7,
            "committed_ms": NOW,
            "files": files,
            "log": LogTail(checkpoint_version=None, commit_count=0, commit_bytes=0),
            "columns": COLUMNS,
            "partition_columns": ("day",),
            "table_id": "t",
            **more,
        }
    )


def planned(of: Snapshot, *, archive: Archive | None = None, **facts: Any) -> ArchivePlan:
    table = TABLE if archive is None else replace(TABLE, archive=archive)
    known = ArchiveFacts(snapshot=of, **{"contents": ArchiveContents(), **facts})
    return plan_archive(table, known, now_ms=NOW)


def days(plan: ArchivePlan) -> list[str | None]:
    return [each.values[0][1] for each in plan.partitions]


def test_a_partition_leaves_when_its_end_reaches_the_cutoff() -> None:
    found = planned(snapshot(*(file(f"2026-01-{day:02}") for day in range(5, 11))))
    assert found.cutoff_ms == NOW - 3 * DAY_MS
    assert days(found) == ["2026-01-05", "2026-01-06", "2026-01-07"]
    assert span_text(found.partitions[-1].span) == ("2026-01-07 00:00", "2026-01-08 00:00")
    assert found.sentence == (
        "3 partitions (30 rows in 3 files, 2.9 KiB) move to the archive: from before"
        " 2026-01-08 00:00 UTC"
    )
    assert found.reason is Reason.PAST_THE_CUTOFF


def test_days_can_be_counted_from_the_newest_row() -> None:
    newest_row = Archive(older_than_days=3, clock="newest_row")
    dead = snapshot(file("2025-06-01"), file("2025-06-02"), file("2025-06-07"))
    assert days(planned(dead)) == ["2025-06-01", "2025-06-02", "2025-06-07"]
    assert days(planned(dead, archive=newest_row)) == ["2025-06-01", "2025-06-02"]
    # A row with a time in the future is no newest row: the table would be emptied.
    wrong = snapshot(file("2025-06-01"), file("2025-06-07"), file("2099-01-01"))
    assert days(planned(wrong, archive=newest_row)) == ["2025-06-01"]
    assert planned(snapshot(), archive=newest_row).reason is Reason.NOTHING_PAST_THE_CUTOFF


def test_the_operation_of_a_killed_run_keeps_its_number_and_its_cutoff() -> None:
    killed = ArchiveOperation(
        number=4,
        kind="archive",
        table_id="t",
        version=6,
        created_ms=NOW - 9 * DAY_MS,
        cutoff_ms=NOW - 5 * DAY_MS,
        storage_class="STANDARD",
        partitions=(),
    )
    old = snapshot(file("2026-01-05"), file("2026-01-07"))
    found = planned(old, contents=ArchiveContents(unapplied=killed, last_number=4))
    assert (found.number, found.cutoff_ms, days(found)) == (4, killed.cutoff_ms, ["2026-01-05"])
    assert found.notes[0] == (
        "operation 4 (archive) was interrupted: this run finishes or withdraws it"
    )
    assert planned(old, contents=ArchiveContents(last_number=4)).number == 5


@pytest.mark.parametrize(("late", "leaves"), [("append", True), ("keep", False), ("refuse", False)])
def test_late_rows_leave_only_if_declared(late: Any, leaves: bool) -> None:
    archive = Archive(older_than_days=3, late=late)
    contents = ArchiveContents(moved=frozenset({(("day", "2026-01-05"),)}), last_number=1)
    found = planned(snapshot(file("2026-01-05")), archive=archive, contents=contents)
    assert days(found) == (["2026-01-05"] if leaves else [])
    assert "day=2026-01-05" in found.notes[0]


def test_restored_partitions_rest_in_the_table() -> None:
    restored: dict[PartitionValues, int] = {
        (("day", "2026-01-05"),): NOW - 2 * DAY_MS,
        (("day", "2026-01-06"),): NOW - 4 * DAY_MS,
    }
    of = snapshot(file("2026-01-05"), file("2026-01-06"))
    found = planned(of, contents=ArchiveContents(restored_ms=restored))
    assert days(found) == ["2026-01-06"]
    assert found.notes[0] == (
        "restored partitions stay in the table for 3 days after their restore: day=2026-01-05"
    )


def test_a_run_moves_the_oldest_partitions_up_to_a_number_of_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """But at least one partition, or nothing would ever move."""
    for module in (archived_files, plan_module):
        monkeypatch.setattr(module, "MOST_FILES", 3)
    by_day = [file(f"2026-01-0{day}", f"f{number}") for day in (3, 1, 2) for number in range(2)]
    found = planned(snapshot(*by_day, file("2026-01-01", "more"), file("2026-01-01", "most")))
    assert (days(found), found.file_count) == (["2026-01-01"], 4)
    assert found.notes[0] == (
        "one run moves at most 3 files, or one partition; later runs move 2 newer partitions"
    )
    assert days(planned(snapshot(*by_day))) == ["2026-01-01"]


def test_partitions_without_a_time_stay() -> None:
    found = planned(snapshot(file("2026-01-05"), file(None), file("soon")))
    assert days(found) == ["2026-01-05"]
    assert (
        "partitions without a time stay in the table: day=__HIVE_DEFAULT_PARTITION__, day=soon"
        in found.notes
    )


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (snapshot(file("2026-01-05", deletion_vector="u1")), "deletion vectors"),
        (snapshot(file("2026-01-05", row_count=None)), ""),
        (
            snapshot(file("2026-01-05"), properties={"delta.columnMapping.mode": "name"}),
            "column mapping",
        ),
        (snapshot(file("2026-01-05"), properties={"delta.columnMapping.mode": "none"}), ""),
        (snapshot(file("2026-01-05"), features=frozenset({"typeWidening"})), "widened"),
        (snapshot(replace(file("2026-01-05"), path="s3://other/f")), "outside the table"),
        (snapshot(file("2026-01-05", size_bytes=6 << 30), uri="s3a://b/t"), "above 5 GiB"),
        (snapshot(file("2026-01-05", size_bytes=6 << 30)), ""),
    ],
)
def test_files_that_are_no_plain_parquet_of_the_table_are_rewritten(of: Snapshot, why: str) -> None:
    [partition] = planned(of).partitions
    assert why in partition.rewritten and bool(why) == bool(partition.rewritten)


def test_old_rows_that_cannot_leave_as_whole_files_are_refused() -> None:
    unpartitioned = snapshot(
        DataFile(path="part-0", size_bytes=1, modified_ms=0), partition_columns=()
    )
    with pytest.raises(Refused, match="from before and after the cutoff, for example part-0"):
        planned(unpartitioned)
    with pytest.raises(Refused, match=r"delta\.appendOnly is true"):
        planned(snapshot(file("2026-01-05"), properties={"delta.appendOnly": "true"}))
    forgets = {"delta.setTransactionRetentionDuration": "interval 1 day"}
    with pytest.raises(Refused, match="its log forgets which operations"):
        planned(snapshot(file("2026-01-05"), properties=forgets))


def test_the_days_in_which_both_copies_exist_are_priced() -> None:
    gib = file("2026-01-05", size_bytes=1 << 30)
    classes = {
        "STANDARD": ClassPrices(name="STANDARD", usd_per_gb_month=0.02),
        "STANDARD_IA": ClassPrices(
            name="STANDARD_IA",
            usd_per_gb_month=0.01,
            usd_per_1000_transitions=0.01,
            minimum_bytes=2 << 30,
            minimum_days=30,
        ),
    }
    on_s3 = snapshot(
        gib,
        uri="s3a://lake/bronze/orders",
        properties={"delta.deletedFileRetentionDuration": "interval 14 days"},
    )
    into = Archive(older_than_days=3, storage_class="STANDARD_IA")
    found = planned(on_s3, archive=into, classes=classes)
    assert found.bytes_leave_ms == NOW + 15 * DAY_MS  # the retention, and until the next vacuum
    assert found.estimate.usd_of_both_copies == pytest.approx(0.02 / 2)
    assert found.estimate.usd_per_month_saved == pytest.approx(0.02 - 2 * 0.01)
    half = planned(on_s3, archive=replace(into, keep_days=15), classes=classes)
    assert half.estimate.usd_per_month_saved == pytest.approx(0.02 - 2 * 0.01 * 30 / 15)
    assert found.estimate.requests["CopyObject"] == 1
    on_disk = planned(snapshot(gib), archive=into)
    assert (on_disk.estimate.usd_of_both_copies, on_disk.estimate.requests) == (0, {})
    assert "the archive is on this disk: Archive.storage_class has no effect" in on_disk.notes


@pytest.mark.parametrize(
    "value", ["2026-01-05", None, "a/b=c", "50%", "[x]*{y}?", "ü 'q' \"d\" \\", "a:b", "\x01"]
)
def test_the_folder_of_a_partition_names_its_values(value: str | None) -> None:
    values = (("da y", "x"), ("b=c", value))
    folder = partition_folder(values)
    assert folder.count("/") == 1 and values_in_folders(folder.split("/")) == values


def test_no_two_files_have_one_name_in_the_archive() -> None:
    values = (("day", "2026-01-05"),)
    names = ArchivedNames(snapshot(), 3, ["archive/bronze/orders/day=2026-01-05/a"])
    assert [names.name_for(values, source) for source in ("x/a", "y/a", "b", "_hidden")] == [
        "archive/bronze/orders/day=2026-01-05/3-1-a",
        "archive/bronze/orders/day=2026-01-05/3-2-a",
        "archive/bronze/orders/day=2026-01-05/b",
        "archive/bronze/orders/day=2026-01-05/file_hidden",
    ]


def test_only_names_that_no_column_has_in_the_files_are_earlier_names() -> None:
    columns = tuple(Column(name=name, type="int") for name in ("b", "c"))
    plain = snapshot(columns=columns)
    renamed = {"a": "B", "b": "C", "x": "gone", "A1": "b"}
    assert names_in_files(plain, {}, renamed) == {"b": ("b", "a", "A1"), "c": ("c",)}
    mapped = replace(plain, physical_names={"b": "col-1", "c": "a"})
    assert names_in_files(mapped, {}, renamed) == {"b": ("col-1", "b", "A1"), "c": ("a", "c")}
    recorded = {"col-1": "c", "a": "d"}
    assert names_in_files(mapped, recorded, {}) == {"b": ("c", "b"), "c": ("d",)}


def test_fields_in_older_records_have_the_names_of_the_table() -> None:
    """They were archived under column mapping, and have names of columns only. Spark wrote logical names."""
    path, physical = ("at", "x"), ("col-1", "col-2")
    mapped = replace(snapshot(), physical_names={"at": "col-1"}, physical_fields={path: physical})
    assert field_names_in_files(mapped, {"col-1": "at"}, {}) == {}
    assert field_names_in_files(mapped, {"col-1": "at"}, {physical: "old"}) == {path: "old"}
    assert field_names_in_files(mapped, {}, {}) == {path: "col-2"}  # copied before the mapping
