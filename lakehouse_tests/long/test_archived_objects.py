"""A landed object in an archive class delays no other, and is loaded after a retry."""

import json
from dataclasses import replace

from pyspark.sql import SparkSession

from lakehouse.base.reasons import Reason
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.quarantine import retry
from lakehouse.materialize.run import write_table
from lakehouse.store import Mount, MountedStore, S3Store
from lakehouse_tests.land.test_run import QUARANTINE
from lakehouse_tests.support.example_lake import event, events, rows_in


def test_an_archived_object_is_set_aside_with_what_to_do_and_loaded_after_a_retry(
    lake: Lake, spark: SparkSession, bucket: str
) -> None:
    """It does not hold up the others; a listing shows it as DEEP_ARCHIVE before and after the restore."""
    s3 = S3Store(bucket, "in")
    there = replace(lake, store=MountedStore(lake.store, {"landing/events": Mount(store=s3)}))
    for name, storage_class in (("a.json", "DEEP_ARCHIVE"), ("b.json", "STANDARD")):
        line = json.dumps(event(ord(name[0]), 5, "new")).encode()
        s3.client.put_object(Bucket=bucket, Key=f"in/{name}", Body=line, StorageClass=storage_class)
    outcome = write_table(there, spark, events)
    [aside] = outcome.set_aside
    assert (aside.name, aside.is_quarantined) == ("a.json", True)
    assert aside.why.startswith("it is archived in storage class DEEP_ARCHIVE")
    assert "aws s3api restore-object" in aside.why
    assert rows_in(lake, events.key, "id") == [(98,)]
    s3.requests.clear()
    assert write_table(there, spark, events).reason is Reason.NOTHING_LANDED
    assert s3.requests == {"ListObjectsV2": 1}
    s3.client.restore_object(Bucket=bucket, Key="in/a.json", RestoreRequest={"Days": 1})
    assert write_table(there, spark, events).reason is Reason.NOTHING_LANDED
    session = TableSession(lake=there, spark=spark, table=events)
    assert retry(session, [], dry_run=False).files == 1
    assert write_table(there, spark, events).rows_written == 1
    assert rows_in(lake, events.key, "id") == [(97,), (98,)]
    assert rows_in(lake, QUARANTINE, "source_file") == []
