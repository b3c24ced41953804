"""The configuration with which Spark starts: Delta, S3A, and parallelism on one machine.

Other settings are elsewhere: the driver's memory in `base/settings.py` (LAKEHOUSE_SPARK_MEMORY),
and the executors of a cluster in `deploy/`.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakehouse.base.settings import Settings, s3_endpoint, s3_region
from lakehouse.spark.server.log_store import JAR, LOG_STORE_CONF

# Spark and PySpark read the token of a Connect server from this variable.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
# The default port of an sc:// address. Source: Spark's client connection string, "port"
CONNECT_PORT = 15002
_DEFAULT_REGION = "us-east-1"

# Set in every session, even on servers that this program did not start. Arrow, deltalake and DuckDB
# read Spark's default type INT96 as nanoseconds, so a single date outside of 1677 to 2262 would
# make a table unreadable for these readers.
# Source: Spark 4.2.0, SQLConf.scala, PARQUET_OUTPUT_TIMESTAMP_TYPE and PARQUET_REBASE_MODE_IN_WRITE
STORED_TIMES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
# Without these, Spark does not know Delta's statements.
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def server_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """The Connect server's configuration, without secrets. The server listens on loopback only."""
    scratch = scratch_folder(settings)
    return {
        "spark.master": f"local[{_cores()}]",
        **_driver_conf(settings, jars),
        **_sizes(_cores()),
        "spark.driver.extraJavaOptions": (
            f'-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError "-Djava.io.tmpdir={scratch}"'
        ),
        "spark.local.dir": str(scratch),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(settings.spark_port),
        **_LOOPBACK,
    }


def session_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """The configuration of a session with its own driver, for `local[N]` and `spark://…`."""
    conf = {
        "spark.master": settings.spark,
        **_driver_conf(settings, jars),
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    }
    if settings.spark.startswith("spark://"):
        # Executors do not have the driver's class path. Parallelism is not set: Spark's defaults
        # are for clusters, and spark-defaults.conf may change them.
        conf["spark.jars"] = ",".join(str(jar) for jar in (*jars, JAR))
    else:
        scratch = {"spark.local.dir": str(scratch_folder(settings))}
        conf |= {**_sizes(cores_of(settings) or _cores()), **scratch, **_LOOPBACK}
    return conf


def s3a_conf(environ: Mapping[str, str]) -> dict[str, str]:
    """S3A's configuration from the variables that boto3 reads.

    Keys and tokens stay in the environment, where the AWS SDK finds them.
    """
    conf = {
        "fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
        "fs.s3a.endpoint.region": s3_region(environ) or _DEFAULT_REGION,
        # By default, S3A waits 200 s for an answer, five times. 15 s is S3A's minimum for
        # establishing a connection.
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
    """A description of the storage in the settings: a disk, or an S3 endpoint and region."""
    if not settings.on_s3:
        return "a lake on disk"
    region = s3_region(os.environ) or _DEFAULT_REGION
    return f"S3 at {s3_endpoint(os.environ) or 'AWS'}, region {region}"


def write_conf(folder: Path, conf: Mapping[str, str]) -> None:
    """Writes a SPARK_CONF_DIR: `conf`, which only its owner can read, and the levels of logging."""
    folder.mkdir(exist_ok=True)
    write_private(
        folder / "spark-defaults.conf",
        "".join(f"{name} {value}\n" for name, value in conf.items()).replace("\\", "\\\\"),
    )
    shutil.copyfile(Path(__file__).with_name("log4j2.properties"), folder / "log4j2.properties")


def write_private(path: Path, text: str) -> None:
    """Atomically writes a file that only its owner can read."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)


def scratch_folder(settings: Settings) -> Path:
    """The folder of Spark's temporary files."""
    return settings.home / "server" / "scratch"


def cores_of(settings: Settings) -> int | None:
    """Spark's cores on this machine; `None` for a cluster or another server: see `task_slots`."""
    if settings.spark in ("server", "local[*]"):
        return _cores()
    if settings.spark.startswith("local["):
        return int(settings.spark.removeprefix("local[").removesuffix("]"))
    return None


def _cores() -> int:
    return max(2, os.cpu_count() or 2)


def _sizes(cores: int) -> dict[str, str]:
    """The numbers of partitions and threads for one machine.

    With the defaults (200, 10000, 50, 15), most tasks would be empty.
    """
    return {
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * cores),
        "spark.databricks.delta.snapshotPartitions": str(min(4, cores)),
        "spark.databricks.delta.optimize.maxThreads": str(cores),
    }


def _driver_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    return {
        "spark.driver.memory": settings.spark_memory,
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in (*jars, JAR)),
        **DELTA,
        "spark.sql.warehouse.dir": str(settings.home / "server" / "warehouse"),
        # In any other time zone, Delta reconstructs the full state at each commit of a small table.
        # Source: Delta Lake 4.4.0, Snapshot.scala, allFilesInCrc.verificationMode.forceOnNonUTC
        "spark.sql.session.timeZone": "UTC",
        **STORED_TIMES,
        **LOG_STORE_CONF,
        # Otherwise, a transaction version that an earlier write left in the session would make
        # Delta skip later writes silently.
        "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
        "spark.ui.enabled": "false",
        **s3a_conf(os.environ),  # adopted tables may be on S3, wherever the lake is
    }
