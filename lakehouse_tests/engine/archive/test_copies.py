"""Copies into an archive: on S3 by S3 itself into the storage class, and nowhere without a comparison."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse.core.archive.records import ArchiveOperation, RecordedPartition
from lakehouse.core.errors import Broken
from lakehouse.engine.archive.copies import (
    SourceFile,
    compare_copies,
    copy_files,
    measured,
    row_count_in_footer,
)
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore, S3Store, Store
from lakehouse_tests.conftest import own_settings

KEY = "bronze/days"


def parquet(row_count: int, columns: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{n}": range(row_count) for n in range(columns)}), sink)
    return bytes(sink.getvalue())


@pytest.fixture(params=["disk", "s3"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    store: Store = DiskStore(tmp_path / "lake")
    if request.param == "s3":
        store = S3Store(request.getfixturevalue("bucket"), "some/lake")
    return Lake(settings=own_settings(tmp_path), store=store)


def recorded(lake: Lake, *row_counts: int) -> ArchiveOperation:
    sources = list[SourceFile]()
    for number, row_count in enumerate(row_counts):
        name, data = f"{KEY}/day=1/f{number}", parquet(row_count)
        lake.store.put(name, data)
        source = SourceFile(
            path=f"day=1/f{number}",
            name=name,
            archived=f"archive/{name}",
            size_bytes=len(data),
            row_count=None if number else row_count,
        )
        sources.append(source)
    partition = RecordedPartition(
        values=(("day", "1"),),
        start_ms=0,
        end_ms=1,
        files=tuple(measured(lake.store, sources)),
    )
    return ArchiveOperation(
        number=1,
        kind="archive",
        table_id="t",
        version=0,
        created_ms=0,
        cutoff_ms=1,
        storage_class="GLACIER_IR",
        partitions=(partition,),
    )


def _copy_and_compare(lake: Lake, operation: ArchiveOperation) -> None:
    copy_files(lake, KEY, operation)
    compare_copies(lake, KEY, operation)


def test_copies_are_the_files_themselves(lake: Lake) -> None:
    operation = recorded(lake, 3, 5)
    assert [file.row_count for file in operation.files] == [3, 5]  # one is of a footer
    _copy_and_compare(lake, operation)
    for file in operation.files:
        assert lake.store.read(file.archived) == lake.store.read(f"{KEY}/{file.source}")
    if isinstance(lake.store, S3Store):
        found = boto3.client("s3").list_objects_v2(
            Bucket=lake.store.bucket, Prefix="some/lake/archive/"
        )
        assert {each["StorageClass"] for each in found["Contents"]} == {"GLACIER_IR"}
    copied = lake.store.requests["CopyObject"]
    copy_files(lake, KEY, operation)
    assert lake.store.requests["CopyObject"] == copied  # an earlier run's copies are kept


def test_a_copy_has_no_tags_that_a_lifecycle_rule_could_follow(bucket: str, tmp_path: Path) -> None:
    lake = Lake(settings=own_settings(tmp_path), store=S3Store(bucket, ""))
    operation, client = recorded(lake, 3), boto3.client("s3")
    [file] = operation.files
    client.put_object_tagging(
        Bucket=bucket, Key=f"{KEY}/{file.source}", Tagging={"TagSet": [{"Key": "a", "Value": "b"}]}
    )
    _copy_and_compare(lake, operation)
    assert client.get_object_tagging(Bucket=bucket, Key=file.archived)["TagSet"] == []


def test_a_copy_with_other_rows_is_found_and_deleted(lake: Lake) -> None:
    operation = recorded(lake, 3, 5)
    copy_files(lake, KEY, operation)
    first, second = operation.files
    lake.store.put(first.archived, parquet(4))
    lake.store.put(second.archived, b"x" * second.size_bytes)
    with pytest.raises(Broken, match="2 archived files differed from the original, for example"):
        compare_copies(lake, KEY, operation)
    assert lake.store.list("archive") == []


def test_a_copy_with_other_values_in_as_many_bytes_is_found(lake: Lake) -> None:
    operation = recorded(lake, 3)
    copy_files(lake, KEY, operation)
    [file] = operation.files
    other = bytearray(lake.store.read(file.archived))
    other[10] ^= 1
    lake.store.put(file.archived, bytes(other))
    with pytest.raises(Broken, match="its content has the checksum"):
        compare_copies(lake, KEY, operation)


def test_an_equal_copy_with_another_etag_is_accepted(bucket: str, tmp_path: Path) -> None:
    """As S3 gives to objects that are encrypted by KMS, or were uploaded in parts."""
    lake = Lake(settings=own_settings(tmp_path), store=S3Store(bucket, ""))
    operation, client = recorded(lake, 3), boto3.client("s3")
    [file] = operation.files
    target = {"Bucket": bucket, "Key": file.archived}
    upload = client.create_multipart_upload(**target)["UploadId"]
    data = lake.store.read(f"{KEY}/{file.source}")
    part = client.upload_part(**target, UploadId=upload, PartNumber=1, Body=data)
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(**target, UploadId=upload, MultipartUpload=parts)
    copied = lake.store.stat(file.archived)
    assert copied is not None and f"etag:{copied.etag}" != file.checksum
    compare_copies(lake, KEY, operation)


def test_a_file_that_was_replaced_is_not_archived(lake: Lake) -> None:
    operation = recorded(lake, 3)
    [file] = operation.files
    other = bytearray(lake.store.read(f"{KEY}/{file.source}"))
    other[10] ^= 1
    lake.store.put(f"{KEY}/{file.source}", bytes(other))
    with pytest.raises(Broken, match=r"was written again|checksum"):
        _copy_and_compare(lake, operation)
    lake.store.delete([f"{KEY}/{file.source}"])
    with pytest.raises(Broken, match="is missing"):
        copy_files(lake, KEY, operation)


@pytest.mark.parametrize("change", [{"size_bytes": 1}, {"name": f"{KEY}/day=1/gone"}])
def test_a_file_that_is_not_as_the_log_says_is_not_recorded(
    lake: Lake, change: dict[str, Any]
) -> None:
    source = SourceFile(
        path="day=1/f0", name=f"{KEY}/day=1/f0", archived="x", size_bytes=7, row_count=1
    )
    lake.store.put(source.name, b"1234567")
    assert measured(lake.store, [source])[0].row_count == 1
    with pytest.raises(Broken, match="but the log says"):
        measured(lake.store, [replace(source, **change)])


def test_a_footer_is_read_from_the_end_of_the_file(lake: Lake) -> None:
    for columns in (1, 3_000):  # the second footer is longer than one read
        lake.store.put("x", parquet(4, columns))
        assert row_count_in_footer(lake.store, "x") == 4
    lake.store.put("x", b"no parquet")
    with pytest.raises(Broken, match="not a readable Parquet file"):
        row_count_in_footer(lake.store, "x")
