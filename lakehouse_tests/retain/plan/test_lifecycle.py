"""The check `lifecycle`, against a bucket's own rules."""

from pathlib import Path

from lakehouse.base.reasons import CheckResult
from lakehouse.declare.table import Adopted, Table
from lakehouse.lake.lake import open_lake
from lakehouse.store import S3Store
from lakehouse.store.s3 import s3_place
from lakehouse.watch.check import check_names, judge
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.store.test_store import answering, error_xml


def test_a_bucket_s_rule_that_deletes_live_files_is_an_error_and_a_missing_right_no_pass(
    bucket: str, tmp_path: Path
) -> None:
    """An adopted table in another bucket is checked against the rules of that bucket."""
    table = Table(key="bronze/orders", write=Adopted(uri=f"s3://{bucket}/warehouse/orders"))
    lake = open_lake(own_settings(tmp_path), tables=[table])
    bucket_store = S3Store(bucket, "warehouse")
    story = LogBuilder(bucket_store, "orders").create()
    story.append([(f"f{number}", 100) for number in range(3)]).store_data()

    def checked() -> CheckResult:
        return next(each for each in judge(table, lake) if each.name == "lifecycle")

    assert check_names(table, lake)[-1] == "lifecycle"
    assert checked().ok
    rule = {"ID": "tidy", "Status": "Enabled", "Filter": {"Prefix": "warehouse/"}}
    rule["Expiration"] = {"Days": 30}
    bucket_store.client.put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": [rule]}
    )
    found = checked()
    assert (found.ok, found.is_error) == (False, True)
    assert found.sentence.startswith(
        "rule 'tidy' (prefix 'warehouse/') deletes after 30 days: 3 of 3 live files of "
    )
    place = s3_place(lake.store, table.key)
    assert place is not None
    answering(place[0].client, "GetBucketLifecycleConfiguration", (403, error_xml("AccessDenied")))
    unknown = checked()
    assert (unknown.ok, unknown.is_error) == (False, False)
    assert "it is unknown" in unknown.sentence
    assert "Grant s3:GetLifecycleConfiguration" in unknown.sentence
