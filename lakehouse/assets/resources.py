"""Spark as a Dagster resource, opened when a run needs it."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from lakehouse.assets.dagster_dev import wait_for_server
from lakehouse.assets.runs import process_tag
from lakehouse.base.installation import is_installed
from lakehouse.base.settings import Settings
from lakehouse.spark.session import connect

if TYPE_CHECKING or is_installed("dagster_pyspark"):
    from dagster_pyspark import LazyPySparkResource
else:

    class LazyPySparkResource(dg.ConfigurableResource[Any]):
        """Takes the place of dagster-pyspark's resource if Spark is not installed."""

        spark_config: dict[str, Any]
        _spark_session: Any = None

        @property
        def spark_session(self) -> Any:
            """Raises `Refused` (in `LakeSpark`); the message names the extra to install."""
            self._init_session()
            return self._spark_session


def spark_resource(settings: Settings) -> LazyPySparkResource:
    """A lazy Spark session: waits for a starting server, and replaces a session that is lost.

    Dagster's UI shows the resource's configuration, so the configuration contains only Spark's
    address and no token. It contains no session id either, because each process gets its own
    session.
    """

    # For each run, Dagster copies the resource without private fields, so a closure holds the
    # settings.
    class LakeSpark(LazyPySparkResource):
        def _init_session(self) -> None:
            if settings.spark == "server":
                wait_for_server(settings, dg.get_dagster_logger().info)
            self._spark_session = connect(settings)

    if settings.spark == "server":
        return LakeSpark(spark_config={"spark.remote": f"sc://localhost:{settings.spark_port}/"})
    name = "spark.remote" if settings.spark.startswith("sc://") else "spark.master"
    return LakeSpark(spark_config={name: settings.spark.partition(";")[0]})


def open_session(context: dg.AssetExecutionContext, spark: LazyPySparkResource) -> Any:
    """Opens the Spark session of a run, and records the run's process in its tags."""
    session = spark.spark_session
    context.instance.add_run_tags(context.run.run_id, process_tag(context.run.run_id))
    return session
