"""The Spark resource: lazy, silent about secrets, and quick to notice that nobody serves."""

from pathlib import Path

import pytest
from dagster_pyspark import LazyPySparkResource

from lakehouse.assets.resources import spark_resource
from lakehouse.base.errors import Transient
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
