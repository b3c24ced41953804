"""Lifecycle rules, tags, storage classes and unfinished uploads of a bucket."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.store import DiskStore, MountedStore, S3Store
from lakehouse.store.s3 import read_lifecycle, s3_place, set_tag, tags_of
from lakehouse_tests.store.test_store import answering, error_xml

FOREIGN = {
    "ID": "tidy",
    "Status": "Enabled",
    "Filter": {"And": {"Prefix": "logs/", "Tags": [{"Key": "a", "Value": "b"}]}},
    "Expiration": {"Days": 7},
    "NoncurrentVersionExpiration": {"NoncurrentDays": 3},
}


def test_enabled_rules_are_read(bucket: str) -> None:
    store = S3Store(bucket, "lake")
    assert read_lifecycle(store) == ()
    disabled = {**FOREIGN, "ID": "off", "Status": "Disabled"}
    store.client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [FOREIGN, disabled]}
    )
    [rule] = read_lifecycle(store)
    assert (rule.name, rule.prefix, rule.tags) == ("tidy", "logs/", {"a": "b"})


@pytest.mark.parametrize(
    ("operation", "ask", "permission"),
    [
        ("GetBucketLifecycleConfiguration", read_lifecycle, "s3:GetLifecycleConfiguration"),
        ("GetObjectTagging", lambda store: tags_of(store, "a"), "s3:GetObjectTagging"),
    ],
)
def test_a_missing_permission_is_named_and_is_no_empty_answer(
    bucket: str, operation: str, ask: Any, permission: str
) -> None:
    store = S3Store(bucket, "lake")
    answering(store.client, operation, (403, error_xml("AccessDenied")))
    with pytest.raises(Refused, match=f"AccessDenied. Grant {permission}"):
        ask(store)


def test_one_tag_is_set_and_removed_and_the_others_stay(bucket: str) -> None:
    store = S3Store(bucket, "lake")
    store.client.put_object(Bucket=bucket, Key="lake/a", Body=b"", Tagging="team=x")
    assert set_tag(store, "a", "lakehouse-tier", "GLACIER_IR") is True
    assert set_tag(store, "a", "lakehouse-tier", "GLACIER_IR") is False
    assert tags_of(store, "a") == {"team": "x", "lakehouse-tier": "GLACIER_IR"}
    assert set_tag(store, "a", "lakehouse-tier", None) is True
    assert tags_of(store, "a") == {"team": "x"}
    with pytest.raises(FileNotFoundError):
        set_tag(store, "b", "lakehouse-tier", "GLACIER_IR")


def test_a_name_leads_to_the_bucket_that_holds_it(tmp_path: Path) -> None:
    disk, bucket = DiskStore(tmp_path), S3Store("b", "")
    mounted = MountedStore(disk, {"silver/t": (bucket, "w/t")})
    assert s3_place(mounted, "silver/t/f") == (bucket, "w/t/f")
    assert s3_place(mounted, "silver/u/f") is None
