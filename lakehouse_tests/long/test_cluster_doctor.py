"""`lakehouse doctor` on a cluster whose Connect server has one planted fault: it is found, and the sentence says what to do."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lakehouse.doctor import checks as spark_checks
from lakehouse.spark import session as open_session
from lakehouse.spark.server.log_store import JAR
from lakehouse_tests.cluster import Cluster, ConnectServer, deployed_conf, standalone
from lakehouse_tests.conftest import free_port
from lakehouse_tests.doctor.test_planted import examine, free_terminal
from lakehouse_tests.s3_servers import BUCKET, s3_server

Conf = dict[str, str]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conf]:
    """What the environment says to reach a bucket."""
    with s3_server("moto", tmp_path_factory.mktemp("moto")) as told:
        yield told


@pytest.fixture(scope="module")
def cluster(told: Conf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and one worker of two cores."""
    with standalone(tmp_path_factory.mktemp("cluster"), told, workers=1, cores=2) as cluster:
        yield cluster


def without(*names: str) -> Callable[[Conf], Conf]:
    """The deployed configuration without these names."""
    return lambda conf: {name: value for name, value in conf.items() if name not in names}


def only_s3a_on_the_driver(conf: Conf) -> Conf:
    """Delta's jars are everywhere; those of S3A only on the driver."""
    delta = [jar for jar in conf["spark.jars"].split(",") if "delta" in os.path.basename(jar)]
    return {**conf, "spark.jars": ",".join(delta)}


def no_log_store_on_executors(conf: Conf) -> Conf:
    """Only the driver has the log store."""
    return {**conf, "spark.jars": conf["spark.jars"].removesuffix(f",{JAR}")}


def no_delta(conf: Conf) -> Conf:
    """Neither the driver nor executors have Delta: Spark would not start with its extension."""
    kept = [jar for jar in conf["spark.jars"].split(",") if "delta" not in os.path.basename(jar)]
    paths = {"spark.driver.extraClassPath": os.pathsep.join(kept), "spark.jars": ",".join(kept)}
    names = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
    return without(*names)(conf) | paths


def nowhere(conf: Conf) -> Conf:
    """Spark is sent to another S3 server than this process."""
    return {**conf, "spark.hadoop.fs.s3a.endpoint": f"http://127.0.0.1:{free_port()}"}


PLANTED = {
    "executors without any jar": (
        without("spark.jars"),
        "spark's storage",
        "executors lack a jar: the class ",
    ),
    "executors without S3A": (
        only_s3a_on_the_driver,
        "spark's storage",
        "executors lack a jar: the class org.apache.hadoop.fs.s3a.S3AFileSystem was not",
    ),
    "executors without the log store": (
        no_log_store_on_executors,
        "commit",
        "executors lack a jar: the class lakehouse.logstore.ConditionalS3LogStore was not",
    ),
    "a server without Delta": (no_delta, "spark", "Start the server with Delta's jars"),
    "a server without Delta's extension": (
        without("spark.sql.extensions"),
        "spark",
        "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
    ),
    "executors larger than any worker": (
        lambda conf: {**conf, "spark.executor.memory": "64g"},
        "spark's storage",
        "there are workers with free cores and memory",
    ),
    "another endpoint for Spark": (nowhere, "spark's storage", "the endpoint, the region, and"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_fault_of_the_connect_server_is_named(
    fault: str, cluster: Cluster, told: Conf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, name, words = PLANTED[fault]
    monkeypatch.setattr(open_session, "_sessions", {})
    if fault == "executors larger than any worker":
        monkeypatch.setattr(spark_checks, "_MOST_SECONDS", 60.0)
    server = ConnectServer(cluster=cluster, conf=plant(deployed_conf(told)))
    with server.running():
        place = {"LAKEHOUSE_ROOT": f"s3://{BUCKET}/lake", **told, **server.environment}
        checks = examine(free_terminal(tmp_path, **place))
    last, (state, text) = checks.popitem()
    assert (last, state) == (name, "failed") and words in text, text


def test_a_default_log_store_is_refused(
    cluster: Cluster, told: Conf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_session, "_sessions", {})
    conf = without("spark.delta.logStore.s3a.impl")(deployed_conf(told))
    with ConnectServer(cluster=cluster, conf=conf).running() as server:
        place = {"LAKEHOUSE_ROOT": f"s3://{BUCKET}/lake", **told, **server.environment}
        checks = examine(free_terminal(tmp_path, **place))
    last, (state, text) = checks.popitem()
    assert (last, state) == ("spark", "failed") and "LAKEHOUSE_LOG_STORE=platform" in text
