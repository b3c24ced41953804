"""What a Spark session is opened with, imported before it is."""

import importlib

from lakehouse.core.settings import Settings
from lakehouse.runtime.interrupts import late_interrupts

# PySpark over Connect needs pandas, pyarrow and gRPC.
_OVER_CONNECT = ("pyspark.sql.connect.session", "delta.connect")


def import_client(settings: Settings) -> None:
    """Imports PySpark and what it needs, which takes seconds on a busy machine; an interrupt waits so long."""
    with late_interrupts():
        for name in ("pyspark.sql", *(_OVER_CONNECT if over_connect(settings) else ())):
            importlib.import_module(name)


def over_connect(settings: Settings) -> bool:
    """Whether Spark is spoken to by Spark Connect: a server of this project's, or a URL `sc://…`."""
    return settings.spark == "server" or settings.spark.startswith("sc://")
