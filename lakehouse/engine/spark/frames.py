"""DataFrames of tables, and views of DataFrames."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.delta.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_at(
    spark: "SparkSession",
    snapshot: Snapshot,
    *,
    version: int | None = None,
    within: Sequence[str] = (),
) -> "DataFrame":
    """The rows of a table at the snapshot's version, or another one, for which each condition in `within` holds."""
    # Without a version, a DataFrame shows what is there when it is run.
    table = (
        spark.read.format("delta")
        .option("versionAsOf", snapshot.version if version is None else version)
        .load(snapshot.uri)
    )
    return table.where(" AND ".join(within)) if within else table


@contextmanager
def temporary_view(spark: "SparkSession", frame: "DataFrame") -> Iterator[str]:
    """The name of a view of the frame, which is dropped with the block."""
    view = f"lakehouse_{uuid4().hex}"
    frame.createOrReplaceTempView(view)
    try:
        yield view
    finally:
        with suppress(Exception):  # the session may be gone, and its views with it
            spark.catalog.dropTempView(view)
