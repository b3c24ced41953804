"""Tables whose files are past their retention at once, for the tests of vacuum."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakehouse import SHORT_RETENTION_RISK, Append, Landing, Table, Vacuum
from lakehouse.lake.lake import Lake
from lakehouse.vacuum.plan.vacuum import VacuumOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = {"delta.deletedFileRetentionDuration": "interval 1 millisecond"}
MONTH_SECONDS = 30 * 86_400


def table_of(key: str = "bronze/t", **knobs: Any) -> Table:
    """A declared table that may be vacuumed whatever its retention is."""
    source = Landing(prefix=f"landing/{key}/", format="json", schema="id BIGINT, part INT")
    return Table(
        key=key,
        source=source,
        write=Append(),
        vacuum=Vacuum(**{"accepts_short_retention": SHORT_RETENTION_RISK, **knobs}),
    )


def deleted(outcome: VacuumOutcome) -> float | None:
    """How many files a vacuum deleted."""
    return outcome.figures[0].actual


def create(spark: "SparkSession", lake: Lake) -> str:
    """An empty table of `id` and `part`, partitioned; its URI."""
    uri = lake.settings.table_uri("bronze/t")
    pairs = ", ".join(f"'{name}' = '{value}'" for name, value in AT_ONCE.items())
    spark.sql(
        f"CREATE TABLE delta.`{uri}` (id BIGINT, part INT) USING delta PARTITIONED BY (part) TBLPROPERTIES ({pairs})"
    )
    return uri


def append(spark: "SparkSession", uri: str, first: int) -> None:
    """One file of new rows in each of two partitions."""
    frame = spark.range(first, first + 4, numPartitions=1).selectExpr("id", "INT(id % 2) AS part")
    frame.write.format("delta").mode("append").save(uri)


def rows(spark: "SparkSession", uri: str) -> list[tuple[int, int]]:
    """The table's rows now, sorted."""
    return sorted((row[0], row[1]) for row in spark.read.format("delta").load(uri).collect())


def stored(lake: Lake, key: str = "bronze/t") -> set[str]:
    """The files of the table's folder without those of its log, relative to it."""
    return {
        file.name.removeprefix(f"{key}/")
        for file in lake.store.list(key)
        if "/_delta_log/" not in file.name
    }


def data_files(lake: Lake, key: str = "bronze/t") -> set[str]:
    """The same without Hadoop's checksums."""
    return {name for name in stored(lake, key) if not name.endswith(".crc")}


def age(
    lake: Lake, names: Iterable[str], key: str = "bronze/t", *, seconds: int = MONTH_SECONDS
) -> None:
    """Files on a disk made older by their own clock."""
    for name in names:
        path = Path(lake.settings.root) / key / name
        status = path.stat()
        os.utime(path, (status.st_atime - seconds, status.st_mtime - seconds))
