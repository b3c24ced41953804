"""What a lake on S3 costs besides its files: unfinished uploads, and the inventory itself."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import boto3
import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.costs.charges import Charge
from lakehouse.core.costs.exact_amounts import day_of, gb_months
from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import OpenUpload
from lakehouse.engine.clock import now_ms
from lakehouse.engine.costs import chargeback_table
from lakehouse.engine.costs.read_ledger import read_ledger
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.lake import open_lake
from lakehouse.engine.store import S3Store
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder

A = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
)


def test_unfinished_uploads_and_the_inventory_have_charges_of_their_own(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an inventory no storage is charged, so these are not, either."""
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake"))
    LogBuilder(lake.store, A.key).create().append([("a", 1_000)]).store_data()
    target = {"Bucket": bucket, "Key": f"lake/{A.key}/x"}
    client = boto3.client("s3")
    upload = client.create_multipart_upload(**target)["UploadId"]
    client.upload_part(**target, UploadId=upload, PartNumber=1, Body=b"x" * 5_000)
    today = day_of(now_ms())

    def charges() -> list[Charge]:
        since = today - timedelta(days=1)
        return list(read_ledger(lake, {A.key: A}, since=since, now_ms=now_ms()).charges)

    assert charges() == []
    scan(lake.store, now_ms=now_ms())
    of_part = {(each.table, each.part): each for each in charges() if each.day == today}
    uploaded = of_part[A.key, "multipart"]
    assert (uploaded.size_bytes, uploaded.quantity) == (5_000, gb_months(5_000, today))
    assert of_part[A.key, "live"].size_bytes == 1_000
    assert of_part["", "inventory"].usd == Decimal("0.000005")  # one LIST request

    def refused(_: S3Store) -> list[OpenUpload]:
        raise Refused("no right to s3:ListBucketMultipartUploads")

    monkeypatch.setattr(chargeback_table, "open_uploads", refused)
    assert "multipart" not in {each.part for each in charges()}
