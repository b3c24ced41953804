"""The Spark resource: lazy, silent about secrets, and quick to notice that nobody serves."""

from pathlib import Path

import pytest
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.errors import Transient
from lakehouse.defs.resources import spark_resource
from lakehouse_tests.defs.example import example_settings


def test_it_is_dagster_pysparks_own(tmp_path: Path) -> None:
    assert isinstance(spark_resource(example_settings(tmp_path)), LazyPySparkResource)


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
    assert spark_resource(example_settings(tmp_path, LAKEHOUSE_SPARK=spark)).spark_config == shown
