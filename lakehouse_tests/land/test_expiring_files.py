"""A lifecycle rule that ends landed files before they are loaded is named."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.settings import parse_settings
from lakehouse.base.text import DAY_MS
from lakehouse.lake.lake import Lake
from lakehouse.land.command import expiring_sentence
from lakehouse.land.plan.batches import LandedFile
from lakehouse.store.s3 import S3Store

NOW_MS = 1_800_000_000_000


def rule(**changes: Any) -> dict[str, Any]:
    return {
        "ID": "tidy",
        "Status": "Enabled",
        "Filter": {"Prefix": "lake/landing/"},
        "Expiration": {"Days": 30},
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "is_named"),
    [
        ({}, True),
        ({"Expiration": {"Days": 60}}, False),
        ({"Expiration": {"Date": datetime(2027, 1, 16, tzinfo=UTC)}}, True),
        ({"Status": "Disabled"}, False),
        ({"Filter": {"Prefix": "lake/bronze/"}}, False),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, False),
    ],
)
def test_a_rule_that_ends_a_waiting_file_within_three_days_is_named(
    bucket: str, tmp_path: Path, changes: dict[str, Any], is_named: bool
) -> None:
    store = S3Store(bucket, "lake")
    settings = parse_settings({"LAKEHOUSE_ROOT": f"s3://{bucket}/lake"}, base=tmp_path)
    lake = Lake(settings=settings, store=store)
    store.client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [rule(**changes)]}
    )
    waiting = [
        LandedFile(name=name, size_bytes=10, modified_ms=NOW_MS - days * DAY_MS)
        for name, days in (("old.json", 29), ("new.json", 2))
    ]
    if "Date" in changes.get("Expiration", {}):
        waiting = waiting[:1]
    found = expiring_sentence(lake, "bronze/orders", "landing/orders/", waiting, now_ms=NOW_MS)
    assert (found is not None) == is_named
    if found is not None:
        assert "lifecycle rule 'tidy' deletes 1 file that is not loaded within three days" in found
        assert "old.json" in found and "lakehouse materialize bronze/orders" in found
    assert expiring_sentence(lake, "x", "landing/orders/", [], now_ms=NOW_MS) is None
