"""The Spark resource: lazy, silent about secrets, and quick to notice that nobody serves."""

from pathlib import Path

import pytest
from dagster_aws.s3 import S3Resource
from dagster_pyspark import LazyPySparkResource

from lakehouse.assets.resources import lake_of, lake_resources, spark_resource
from lakehouse.base.errors import Transient
from lakehouse_tests.s3_servers import BUCKET, s3_server
from lakehouse_tests.support.example_assets import example_settings


def test_a_server_that_is_down_is_noticed_at_once(tmp_path: Path) -> None:
    with pytest.raises(Transient, match="lakehouse server start"):
        _ = spark_resource(example_settings(tmp_path)).spark_session


@pytest.mark.parametrize(
    ("spark", "shown"),
    [
        ("server", {"spark.remote": "sc://localhost:1/"}),
        ("sc://far:15002/;x-password=tok-8391", {"spark.remote": "sc://far:15002/"}),
        ("local[2]", {"spark.master": "local[2]"}),
        ("spark://far:7077", {"spark.master": "spark://far:7077"}),
    ],
)
def test_its_configuration_says_where_spark_is_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: str, shown: dict[str, str]
) -> None:
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", "tok-8391")
    resource = spark_resource(example_settings(tmp_path, LAKEHOUSE_SPARK=spark))
    assert isinstance(resource, LazyPySparkResource) and resource.spark_config == shown


def test_dagsters_resource_reaches_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("moto", tmp_path, region="eu-west-3") as told:
        for name, value in told.items():
            monkeypatch.setenv(name, value)
        settings = example_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{BUCKET}/some/where")
        resources = lake_resources(settings)
        s3, store = resources["s3"], lake_of(settings, resources).store
        assert isinstance(s3, S3Resource)
        assert (s3.endpoint_url, s3.region_name) == (told["AWS_ENDPOINT_URL"], "eu-west-3")
        assert s3.aws_secret_access_key is None
        assert store.put_if_absent("x", b"1") and not store.put_if_absent("x", b"2")
