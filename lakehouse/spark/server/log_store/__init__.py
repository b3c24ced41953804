"""Names Delta's log stores, so that Spark writes a version only if it does not exist.

`ConditionalS3LogStore` and `LinkLogStore` are Java; `make jar` compiles them.
"""

from pathlib import Path

JAR = Path(__file__).with_name("lakehouse-log-store.jar")
ON_DISK = "lakehouse.logstore.LinkLogStore"
ON_S3 = "lakehouse.logstore.ConditionalS3LogStore"
# Delta's own log stores check whether a version exists and then write it, which is not atomic.
# Source: delta-io/delta v4.4.0, DelegatingLogStore and the stores themselves
_DELTAS_OWN = ("io.delta.storage.", "org.apache.spark.sql.delta.storage.")


def log_store_setting(scheme: str) -> str:
    """The name of Spark's setting for an address scheme: `s3a`, `s3` or `file`."""
    return f"spark.delta.logStore.{scheme}.impl"


LOG_STORE_CONF = {
    log_store_setting("file"): ON_DISK,
    log_store_setting("s3a"): ON_S3,
    log_store_setting("s3"): ON_S3,
}


def is_conditional(log_store: str) -> bool:
    """Whether a log store of this class writes a version only if it does not exist.

    The log stores that Delta 4.4 includes do not. An empty name stands for one of them. Log stores
    of other projects are assumed to do so.
    """
    return bool(log_store) and not log_store.startswith(_DELTAS_OWN)
