"""Nothing is committed where a commit could overwrite another one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import adopted_table
from lakehouse.lake import commits as conditional_commits
from lakehouse.lake.commits import (
    commit_info,
    create_version,
    refuse_unsafe_commits,
    refuse_unsafe_storage,
)
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.lease import hold
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import S3Store, store_at
from lakehouse.store.s3 import client_from_environ
from lakehouse_tests.conftest import own_settings

OWN_STORE = "org.apache.spark.sql.delta.storage.HDFSLogStore"


@pytest.fixture(autouse=True)
def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was tested yet, as in a new process."""
    monkeypatch.setattr(conditional_commits, "_honouring", set())


def deaf_client(operation: str) -> Any:
    """A client whose server ignores the condition of this operation."""

    def unheard(request: Any, **_: Any) -> None:
        del request.headers["If-None-Match"]

    client = client_from_environ()
    client.meta.events.register(f"before-sign.s3.{operation}", unheard)
    return client


@pytest.mark.parametrize("operation", ["PutObject", "CompleteMultipartUpload"])
def test_a_bucket_that_ignores_conditions_is_refused_at_the_first_write(
    tmp_path: Path, bucket: str, operation: str
) -> None:
    """S3A uploads a large commit in parts."""
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}")
    lake = open_lake(settings, lambda **_: deaf_client(operation))
    refused = rf"^write of bronze/t: the bucket {bucket} ignores If-None-Match.*Use AWS S3"
    no_session: Any = None
    with pytest.raises(Refused, match=refused):
        refuse_unsafe_commits(lake, no_session, "bronze/t", asked="write of bronze/t")
    if operation == "PutObject":
        with pytest.raises(Refused, match="If-None-Match"), hold(lake, None, "t", owner="write"):
            pass
    assert isinstance(lake.store, S3Store)
    assert "Uploads" not in lake.store.client.list_multipart_uploads(Bucket=bucket)


def test_a_bucket_is_tested_once_per_process(tmp_path: Path, bucket: str) -> None:
    settings = own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}")
    refuse_unsafe_storage(open_lake(settings), asked="a write")
    lake = open_lake(settings)
    refuse_unsafe_storage(lake, "bronze/t", asked="a write")
    assert not lake.store.requests


def test_an_adopted_table_s_bucket_is_tested_and_left_as_is(tmp_path: Path, bucket: str) -> None:
    table = adopted_table("silver/orders", f"s3://{bucket}/orders")
    lake = open_lake(own_settings(tmp_path), tables=[table])
    refuse_unsafe_storage(lake, table.key, asked="a write")
    assert [*store_at(f"s3://{bucket}").walk("")] == []
    deaf = open_lake(own_settings(tmp_path), lambda **_: deaf_client("PutObject"), tables=[table])
    conditional_commits._honouring.clear()
    with pytest.raises(Refused, match=f"a write: the bucket {bucket} ignores"):
        refuse_unsafe_storage(deaf, table.key, asked="a write")
    assert [*store_at(f"s3://{bucket}").walk("")] == []


@pytest.mark.parametrize("folder", ["", "sales/orders/"])
def test_a_commit_to_an_adopted_table_adds_its_version_and_nothing_else(
    tmp_path: Path, bucket: str, folder: str
) -> None:
    table = adopted_table("silver/orders", f"s3://{bucket}/{folder}".rstrip("/"))
    lake = open_lake(own_settings(tmp_path), tables=[table])
    assert create_version(lake, table.key, 0, [commit_info("WRITE", -1, {})])
    assert not create_version(lake, table.key, 0, [])
    [version] = store_at(f"s3://{bucket}").walk("")
    assert version.key == f"{folder}_delta_log/{0:020}.json" and version.size_bytes > 0


def test_delta_s_own_log_store_needs_a_trusted_platform(lake: Lake, spark: SparkSession) -> None:
    with session_confs(spark, {"spark.delta.logStore.file.impl": OWN_STORE}):
        refused = "^write of bronze/t: Spark's commits to .* are not conditional.*LAKEHOUSE_LOG_STORE=platform"
        with (
            pytest.raises(Refused, match=refused),
            hold(lake, spark, "t", owner="write of bronze/t"),
        ):
            pass
        trusting = replace(lake, settings=replace(lake.settings, log_store="platform"))
        with hold(trusting, spark, "t", owner="write of bronze/t"):
            pass
    with hold(lake, spark, "t", owner="write of bronze/t"):
        pass
