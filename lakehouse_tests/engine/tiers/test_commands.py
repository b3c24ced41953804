"""`lakehouse tiers` on a bucket, as a person types it."""

from pathlib import Path

import boto3
import pytest

from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.store import S3Store
from lakehouse_tests.cli.conftest import Terminal
from lakehouse_tests.engine.store.test_s3_objects import FOREIGN
from lakehouse_tests.engine.tiers.test_apply import LONG, SIZE
from lakehouse_tests.log_builder import LogBuilder

KEY = "bronze/orders"


@pytest.fixture
def terminal(bucket: str, aws: str, tmp_path: Path) -> Terminal:
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    place = {"AWS_ENDPOINT_URL": aws, "AWS_DEFAULT_REGION": "us-east-1"}
    return Terminal(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/lake", **keys, **place)


def test_a_plan_a_dry_run_and_an_apply_that_installs_the_rule(
    terminal: Terminal, bucket: str
) -> None:
    store = S3Store(bucket, "lake")
    story = LogBuilder(store, KEY).create(properties=LONG)
    story.append([("a", SIZE), ("old", SIZE)]).store_data().delete(["old"])
    scan(store, now_ms=now_ms())
    rules = {"Rules": [FOREIGN]}
    store.client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration=rules)
    [plan] = terminal.json("tiers", "plan", KEY)["tables"]
    assert (plan["reason"], plan["paths"]) == ("TIER_PAYS", ["old"])
    dry = terminal.run("tiers", "apply", KEY, "--dry-run", "--install-rule").stdout
    assert f"{KEY}/old" in dry.splitlines()
    assert "must be added to the bucket's rules" in dry
    assert store.client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == [FOREIGN]
    applied = terminal.run("tiers", "apply", KEY)
    assert (applied.exit_code, applied.stderr) == (0, "")
    assert f"{KEY}: 1 file tagged, 0 untagged" in applied.stdout
    again = terminal.json("tiers", "apply", KEY, "--install-rule")
    assert (again["installed"], again["tables"][0]["actual_files"]) == (True, 0)
    listed = boto3.client("s3").get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert [each["ID"] for each in listed] == ["tidy", "lakehouse-tier GLACIER_IR lake/"]
    costs_more = terminal.run("tiers", "plan").stdout
    assert "would be cheaper in GLACIER_IR" in costs_more
    assert "does not exist yet" in costs_more
