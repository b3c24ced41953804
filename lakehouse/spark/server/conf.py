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

# Arrow, deltalake and DuckDB read Spark's default type INT96 as nanoseconds, so a single date
# outside of 1677 to 2262 would make a table unreadable for these readers.
# Source: Spark 4.2.0, SQLConf.scala, PARQUET_OUTPUT_TIMESTAMP_TYPE and PARQUET_REBASE_MODE_IN_WRITE
STORED_TIMES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}
# Set in every session, even on servers that this program did not start.
SESSION_CONF = {
    **STORED_TIMES,
    # In any other time zone, Delta reconstructs the full state at each commit of a small table, and
    # times without a zone would be interpreted in that zone.
    # Source: Delta Lake 4.4.0, Snapshot.scala, allFilesInCrc.verificationMode.forceOnNonUTC
    "spark.sql.session.timeZone": "UTC",
    # A broken or missing file is an error. If readers skipped it, a rewrite would lose its rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Maps can be hashed, with their entries in the stored order. A rewrite keeps that order.
    "spark.sql.legacy.allowHashOnMapType": "true",
    # A version can be read as long as its files exist, also if it is older than the retention.
    # Source: Delta Lake 4.4.0, DeltaSQLConf
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # An overwrite replaces all partitions, also those for which it has no rows.
    "spark.sql.sources.partitionOverwriteMode": "static",
}
# Without these, Spark does not know Delta's statements.
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def spark_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """The configuration of a driver, without secrets.

    The driver is the Connect server, which listens on loopback only, or that of a session
    (`local[N]`, `spark://…`).
    """
    scratch = scratch_folder(settings)
    cores = max(2, os.cpu_count() or 2)
    conf = {
        "spark.master": settings.spark,
        "spark.driver.memory": settings.spark_memory,
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in (*jars, JAR)),
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        **DELTA,
        "spark.sql.warehouse.dir": str(settings.home / "server" / "warehouse"),
        **SESSION_CONF,
        **LOG_STORE_CONF,
        # Otherwise, a transaction version that an earlier write left in the session would make
        # Delta skip later writes silently.
        "spark.databricks.delta.write.txnVersion.autoReset.enabled": "true",
        "spark.ui.enabled": "false",
        **s3a_conf(os.environ),  # adopted tables may be on S3, wherever the lake is
    }
    if settings.spark.startswith("spark://"):
        # Executors do not have the driver's class path. Parallelism is not set: Spark's defaults
        # are for clusters, and spark-defaults.conf may change them.
        return {**conf, "spark.jars": ",".join(str(jar) for jar in (*jars, JAR))}
    if settings.spark == "server":
        conf |= {
            "spark.master": f"local[{cores}]",
            "spark.driver.extraJavaOptions": (
                f'-Duser.timezone=UTC -XX:+ExitOnOutOfMemoryError "-Djava.io.tmpdir={scratch}"'
            ),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(settings.spark_port),
        }
    elif settings.spark != "local[*]":
        cores = int(settings.spark.removeprefix("local[").removesuffix("]"))
    return {
        **conf,
        **_parallelism(cores),
        "spark.local.dir": str(scratch),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def _parallelism(cores: int) -> dict[str, str]:
    """The numbers of tasks. With the defaults (200, 10000, 50, 15), most tasks would be empty."""
    sizes = {
        "spark.sql.shuffle.partitions": 2 * cores,
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": 2 * cores,
        "spark.databricks.delta.snapshotPartitions": min(4, cores),
        "spark.databricks.delta.optimize.maxThreads": cores,
    }
    return {name: str(size) for name, size in sizes.items()}


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


def write_private(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Atomically writes a file that only its owner can read, or a file with another `mode`."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
    temporary.replace(path)


def scratch_folder(settings: Settings) -> Path:
    """The folder of Spark's temporary files."""
    return settings.home / "server" / "scratch"
