"""Spark and S3 as Dagster resources, opened when a run needs them."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from lakehouse.assets.dagster_dev import wait_for_server
from lakehouse.assets.runs import process_tag
from lakehouse.base.installation import is_installed, require
from lakehouse.base.settings import Settings
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.spark.session import connect
from lakehouse.store.s3 import client_options, s3_client

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


def lake_of(settings: Settings, resources: Mapping[str, Any], tables: Sequence[Table] = ()) -> Lake:
    """The lake that all asset factories share. Nothing is opened before its first use.

    The resource `s3`, if there is one, creates the lake's S3 clients.
    """
    make_client = resources["s3"].get_client if "s3" in resources else None
    return open_lake(settings, make_client, tables=tables)


def lake_resources(settings: Settings) -> dict[str, Any]:
    """The resource `spark`, and on S3 also `s3`.

    The AWS_ variables configure `s3`, and boto3 finds the credentials.
    """
    resources: dict[str, Any] = {"spark": spark_resource(settings)}
    if settings.on_s3:
        require("dagster_aws", extra="s3", purpose="a lake on S3")
        from dagster_aws.s3 import S3Resource  # loads boto3, which a lake on disk does not need

        class LakeS3(S3Resource):
            def get_client(self, **timeouts: Any) -> Any:
                options = {name: getattr(self, name) for name in client_options({})}
                return s3_client(**options | timeouts)

        resources["s3"] = LakeS3(**client_options(os.environ))
    return resources


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

    address = settings.spark.partition(";")[0]
    if settings.spark == "server":
        address = f"sc://localhost:{settings.spark_port}/"
    name = "spark.remote" if address.startswith("sc://") else "spark.master"
    return LakeSpark(spark_config={name: address})


def open_session(context: dg.AssetExecutionContext, spark: LazyPySparkResource) -> Any:
    """Opens the Spark session of a run, and records the run's process in its tags."""
    session = spark.spark_session
    context.instance.add_run_tags(context.run.run_id, process_tag(context.run.run_id))
    return session
