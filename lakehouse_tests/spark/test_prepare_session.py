import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.settings import Settings
from lakehouse.spark import errors
from lakehouse.spark import session as spark_session
from lakehouse.spark.server import server
from lakehouse.spark.server.conf import SESSION_CONF, s3a_conf, spark_conf
from lakehouse.spark.server.log_store import JAR
from lakehouse.spark.temporary_confs import session_confs
from lakehouse_tests.conftest import free_port, own_settings, wait_until
from lakehouse_tests.support.clients import Thrown, gate


@pytest.fixture
def session(shared_settings: Settings) -> SparkSession:
    return spark_session.connect(shared_settings)


@pytest.mark.spark
def test_each_session_knows_its_own_id(shared_settings: Settings, session: SparkSession) -> None:
    configs = [spark_session.session_config(shared_settings) for _ in range(2)]
    assert configs[0] != configs[1]
    assert [set(config) for config in configs] == [{"spark.remote"}, {"spark.remote"}]
    assert session.sql("SELECT 1 AS one").collect()[0].one == 1
    assert spark_session.connect(shared_settings) is session
    assert len(session.session_id) == 36  # type: ignore[attr-defined]  # Connect


@pytest.mark.spark
def test_spark_is_asked_how_many_tasks_it_runs_at_once(session: SparkSession) -> None:
    with session_confs(session, {"spark.sql.leafNodeDefaultParallelism": "7"}):
        assert spark_session.task_slots(session) == 7
    assert spark_session.task_slots(session) == 2


@pytest.mark.spark
def test_each_session_stores_microseconds_reads_every_file_and_times_as_utc(
    shared_settings: Settings,
) -> None:
    """Whatever the server is set to: one elsewhere is not started here."""
    session = spark_session.connect(shared_settings)
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    session.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    session.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    session.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    connected = spark_session.connect(shared_settings)
    assert {name: connected.conf.get(name) for name in SESSION_CONF} == SESSION_CONF
    query = "SELECT timestamp'2026-07-01 12:00:00' = timestamp'2026-07-01 12:00:00Z'"
    assert connected.sql(query).collect()[0][0]


def test_a_lost_race_for_a_commit_is_transient(
    shared_settings: Settings, session: SparkSession, tmp_path: Path
) -> None:
    table = f"delta.`{tmp_path / 'contended'}`"
    session.range(3).coalesce(1).write.format("delta").save(str(tmp_path / "contended"))
    seen, go = tmp_path / "seen", tmp_path / "go"

    session.udf.register("gate", gate(seen, go))
    delete = Thrown(lambda: session.sql(f"DELETE FROM {table} WHERE gate(id) = 1"))
    wait_until("the slow delete reads the table", seen.exists)
    session.sql(f"DELETE FROM {table} WHERE id = 1")
    go.touch()
    delete.join()
    assert isinstance(delete.error, Transient), delete.error
    assert "another writer" in str(delete.error)


@pytest.mark.spark
def test_nobody_else_stops_or_supervises_a_supervised_server(shared_settings: Settings) -> None:
    with pytest.raises(Refused, match="supervises the Spark Connect server"):
        server.stop(shared_settings)
    with pytest.raises(Transient, match="already supervises"), server.supervised(shared_settings):
        pass
    assert server.status(shared_settings).is_running


def test_a_server_that_is_down_is_noticed_before_pyspark_is_even_loaded(tmp_path: Path) -> None:
    settings = own_settings(tmp_path)
    program = f"""
import sys
from lakehouse.base.errors import Transient
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from lakehouse.spark import session as spark_session
from lakehouse.base.settings import parse_settings
from pathlib import Path
try:
    spark_session.prepare(parse_settings({settings.as_environ()!r}, base=Path.cwd()))
except Transient as error:
    print(error)
assert not [name for name in sys.modules if name.startswith(("pyspark", "dagster"))]
"""
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == (
        f"Spark Connect server of this lake is not running at localhost:{settings.spark_port}; "
        "start it with: lakehouse server start (or make run, or dagster dev)\n"
    )


ADDRESSES = ["", "/", "/;use_ssl=true", ":15999/;user_id=me"]


@pytest.mark.parametrize("given", [f"sc://127.0.0.1{each}" for each in ADDRESSES])
def test_the_url_of_a_server_elsewhere_has_a_user_and_session(given: str, tmp_path: Path) -> None:
    settings = own_settings(tmp_path, LAKEHOUSE_SPARK=given)
    remote, other = (spark_session.session_config(settings)["spark.remote"] for _ in range(2))
    parameters = dict(part.split("=") for part in urlsplit(remote).path.strip("/;").split(";"))
    assert remote.startswith(given)
    assert remote != other
    assert set(parameters) >= {"user_id", "session_id"}
    assert parameters["user_id"] == ("me" if "user_id=me" in given else "lakehouse")


def test_a_server_elsewhere_that_does_not_answer_is_transient(tmp_path: Path) -> None:
    settings = own_settings(tmp_path)
    with pytest.raises(Transient, match=f"127.0.0.1:{settings.spark_port}"):
        spark_session.prepare(replace(settings, spark=f"sc://127.0.0.1:{settings.spark_port}"))


def test_a_session_with_its_own_driver_is_told_all_before_it_starts(tmp_path: Path) -> None:
    alone = spark_session.session_config(own_settings(tmp_path, LAKEHOUSE_SPARK="local[2]"))
    assert alone["spark.master"] == "local[2]"
    assert alone["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert len(alone["spark.driver.extraClassPath"].split(os.pathsep)) == 41
    settings = own_settings(tmp_path, LAKEHOUSE_SPARK="spark://host:7077")
    cluster = spark_session.session_config(settings)
    assert len(cluster["spark.jars"].split(",")) == 41
    assert "spark.driver.host" not in cluster


S3, HOME = "https://s3.example", "us-east-1"
REGIONS = {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "us-west-2"}
OWN = {"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": S3}


@pytest.mark.parametrize(
    ("environ", "endpoint", "ssl", "region"),
    [
        ({}, None, None, HOME),
        (REGIONS, None, None, "eu-west-1"),
        ({"AWS_ENDPOINT_URL": "http://[::1]:5"}, "http://[::1]:5", "false", HOME),
        (OWN, S3, "true", HOME),
    ],
)
def test_s3a_goes_where_boto3_goes(
    environ: dict[str, str], endpoint: str | None, ssl: str | None, region: str
) -> None:
    conf = s3a_conf({**environ, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"})
    assert conf.get("spark.hadoop.fs.s3a.endpoint") == endpoint
    assert conf.get("spark.hadoop.fs.s3a.connection.ssl.enabled") == ssl
    assert conf["spark.hadoop.fs.s3a.endpoint.region"] == region
    assert conf["spark.hadoop.fs.s3a.connection.timeout"] == "60s"
    assert {"key", "secret"}.isdisjoint(conf.values())


def test_sizes_are_those_of_one_machine_or_a_clusters_own(tmp_path: Path) -> None:
    delta = "spark.databricks.delta"
    sized = (f"{delta}.snapshotPartitions", f"{delta}.optimize.maxThreads")
    sized = ("spark.sql.shuffle.partitions", *sized)
    settings = own_settings(tmp_path, LAKEHOUSE_SPARK="local[3]")
    conf = spark_conf(settings, ())
    assert [conf[name] for name in sized] == ["6", "3", "3"]
    settings = own_settings(tmp_path, LAKEHOUSE_SPARK="spark://127.0.0.1:7077")
    conf = spark_conf(settings, (tmp_path / "delta.jar",))
    assert not conf.keys() & {*sized}
    assert conf["spark.jars"] == f"{tmp_path}/delta.jar,{JAR}"  # for the executors


def test_a_master_that_does_not_answer_is_named_at_once(tmp_path: Path) -> None:
    masters = f"spark://127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    with pytest.raises(Transient, match=f"no Spark master answers at {masters}"):
        spark_session.prepare(own_settings(tmp_path, LAKEHOUSE_SPARK=masters))


def test_a_server_is_told_of_s3_wherever_the_lake_is(tmp_path: Path) -> None:
    """A table that others write may lie in a bucket beside a lake on disk."""
    on_disk = spark_conf(own_settings(tmp_path), ())
    on_s3 = spark_conf(own_settings(tmp_path, LAKEHOUSE_ROOT="s3://bucket"), ())
    name = "spark.hadoop.fs.s3a.endpoint.region"
    assert on_disk[name] == on_s3[name] != ""


def test_rows_that_are_lost_with_their_executor_are_asked_for_again() -> None:
    class Lost(Exception):
        """A statement that a cluster ended, as its trace tells it."""

        _stacktrace = (
            "org.apache.spark.SparkException: Job aborted\n"
            "Caused by: org.apache.spark.SparkException: [CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_0 not found!"
        )

    with pytest.raises(Transient, match="lost with their executor"), errors.translated():
        raise Lost
