"""The confs of Spark at its start: Delta, S3A and sizes that fit a small machine."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakehouse.core.settings import Settings, s3_endpoint, s3_region

# Spark and PySpark read the token of a Connect server from it.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
CONNECT_PORT = (
    15002  # of an sc:// address without one. Source: Spark's client connection string, "port"
)
_DEFAULT_REGION = "us-east-1"
# Of what tables hold, in every session, also on a server that others start. By default a time is an INT96, which Arrow,
# deltalake and DuckDB read as nanoseconds: one date outside of 1677 to 2262 would make a table unreadable for them.
# Source: Spark 4.2.0, SQLConf.scala, PARQUET_OUTPUT_TIMESTAMP_TYPE and PARQUET_REBASE_MODE_IN_WRITE
STORED_TIMES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def server_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Confs of the Connect server: on loopback, everything it writes inside the lake's home. No secret is among them."""
    scratch = scratch_folder(settings)
    return {
        "spark.master": f"local[{_cores()}]",
        **_driver_conf(settings, jars),
        "spark.driver.extraJavaOptions": f'-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError "-Djava.io.tmpdir={scratch}"',
        "spark.local.dir": str(scratch),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(settings.spark_port),
        **_LOOPBACK,
    }


def session_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Confs of a session with a driver of its own, for `local[N]` and `spark://…`."""
    conf = {
        "spark.master": settings.spark,
        **_driver_conf(settings, jars),
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }
    if settings.spark.startswith("spark://"):
        conf["spark.jars"] = ",".join(
            str(jar) for jar in jars
        )  # executors have none of the driver's class path
    else:
        conf |= {"spark.local.dir": str(scratch_folder(settings)), **_LOOPBACK}
    return conf


def s3a_conf(environ: Mapping[str, str]) -> dict[str, str]:
    """S3A's confs for what boto3 reads from these variables. Keys and tokens stay in the environment, where the AWS SDK finds them."""
    conf = {
        "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "fs.s3a.endpoint.region": s3_region(environ) or _DEFAULT_REGION,
        # S3A's own default is 200 s for an answer, five times. It takes no less than 15 s for a connection.
        # Source: Hadoop 3.5.0, hadoop-aws, Constants.java, MINIMUM_NETWORK_OPERATION_DURATION
        "fs.s3a.connection.establish.timeout": "15s",
        "fs.s3a.connection.timeout": "60s",
        "fs.s3a.attempts.maximum": "3",
    }
    if endpoint := s3_endpoint(environ):
        conf |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false" if endpoint.startswith("http://") else "true",
        }
    return {f"spark.hadoop.{name}": value for name, value in conf.items()}


def storage_of(settings: Settings) -> str:
    """The storage that a server that starts now is told of, in words: a server for the disk knows nothing of S3."""
    if not settings.on_s3:
        return "a lake on disk"
    return f"S3 at {s3_endpoint(os.environ) or 'AWS'}, region {s3_region(os.environ) or _DEFAULT_REGION}"


def write_conf(folder: Path, conf: Mapping[str, str]) -> None:
    """A folder for SPARK_CONF_DIR with these confs, for their owner only, and logging of warnings only."""
    folder.mkdir(exist_ok=True)
    write_private(
        folder / "spark-defaults.conf",
        "".join(f"{name} {value}\n" for name, value in conf.items()).replace("\\", "\\\\"),
    )
    shutil.copyfile(Path(__file__).with_name("log4j2.properties"), folder / "log4j2.properties")


def write_private(path: Path, text: str) -> None:
    """A file written whole or not at all, which only its owner may read, from its first byte on."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    fresh.replace(path)


def scratch_folder(settings: Settings) -> Path:
    """The folder of what Spark needs only while it runs."""
    return settings.home / "server" / "scratch"


def cores_of(settings: Settings) -> int:
    """The count of cores the driver may keep busy; 0 (unknown) where it is not ours."""
    return _cores() if settings.spark == "server" else 0


def _cores() -> int:
    return max(2, os.cpu_count() or 2)


def _driver_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    cores = _cores()
    return {
        "spark.driver.memory": settings.spark_memory,
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(settings.home / "server" / "warehouse"),
        # Any other zone makes Delta check its file lists by a full state reconstruction at each commit of a small table.
        # Source: Delta Lake 4.4.0, Snapshot.scala, allFilesInCrc.verificationMode.forceOnNonUTC
        "spark.sql.session.timeZone": "UTC",
        **STORED_TIMES,
        # The defaults (200, 10000, 50 and 15) are for clusters: tasks without work cost more here than the work.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * cores),
        "spark.databricks.delta.snapshotPartitions": str(min(4, cores)),
        "spark.databricks.delta.optimize.maxThreads": str(cores),
        # A left-over transaction version would silently swallow every later write of the session.
        "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
        "spark.ui.enabled": "false",
        **s3a_conf(os.environ),  # a table that others write may lie there, wherever the lake is
    }
