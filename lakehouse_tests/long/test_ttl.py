"""Random tables with a TTL: exactly the rows before the cutoff are gone, and the prediction holds.

`TTLS=20 FIRST=300 python -m pytest -s lakehouse_tests/long/test_ttl.py` runs others, or fewer.
"""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import SparkSession

from lakehouse import Append, Landing, Table, Ttl
from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.retain.run.ttl import run_ttl
from lakehouse.spark import statements

TTLS, FIRST = int(os.environ.get("TTLS", "30")), int(os.environ.get("FIRST", "0"))
NOW = datetime.now(tz=UTC)
KEY = "bronze/t"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("part", pa.string()),
    ]
)
SOURCE = Landing(
    prefix="landing/t/",
    format="json",
    schema="id BIGINT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, part STRING",
)


def rows_of(random: Random, first: int) -> list[dict[str, Any]]:
    """Rows around the cutoff of 30 days, some without a time, now and then one of the year 9999."""
    rows = list[dict[str, Any]]()
    oldest = random.choice([20, 40, 90])
    youngest = random.choice([0, 25, 35])
    for id_ in range(first, first + random.randrange(1, 30)):
        age = random.uniform(min(oldest, youngest), max(oldest, youngest))
        at: datetime | None = NOW - timedelta(days=age)
        if random.random() < 0.1:
            at = None
        elif random.random() < 0.02:
            at = datetime(9999, 12, 31, tzinfo=UTC)
        local = None if at is None else at.replace(tzinfo=None)
        day = None if at is None else at.date()
        rows.append({"id": id_, "at": at, "local": local, "day": day})
    return rows


@pytest.mark.parametrize("seed", range(FIRST, FIRST + TTLS))
def test_exactly_the_rows_before_the_cutoff_are_gone(
    shared_settings: Settings, spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    lake = open_lake(replace(shared_settings, root=str(tmp_path / "lake")))
    by = random.choice([(), ("part",), ("day",), ("part", "day")])
    column = random.choice(["at", "local", "day"])
    table = Table(
        key=KEY,
        source=SOURCE,
        write=Append(partition_by=by),
        ttl=Ttl(column=column, days=30, clock=random.choice(["now", "newest_row"])),
    )
    written = _write(lake, spark, random, by)
    left = _left(lake)
    outcome = run_ttl(lake, table, lambda: spark)
    cutoff_ms = outcome.plan.cutoff_ms
    assert cutoff_ms is not None or outcome.plan.is_idle
    expected = {
        row["id"]
        for row in written
        if cutoff_ms is None or row[column] is None or _ms(row[column]) >= cutoff_ms
    }
    assert _left(lake) == _left_by_spark(spark, lake) == expected
    deleted = len(left) - len(expected)
    if outcome.version_after is not None:
        assert outcome.figures[0].actual == deleted
    assert outcome.plan.row_count in (None, deleted)
    assert run_ttl(lake, table, lambda: spark).version_after is None


def _write(
    lake: Lake, spark: SparkSession, random: Random, by: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Commits of random rows; perhaps with deletion vectors, and with rows deleted by others."""
    uri = lake.settings.table_uri(KEY)
    written = list[dict[str, Any]]()
    for commit in range(random.randrange(1, 5)):
        rows = [{**row, "part": random.choice("ab")} for row in rows_of(random, commit * 100)]
        write_deltalake(
            uri, pa.Table.from_pylist(rows, schema=SCHEMA), mode="append", partition_by=[*by]
        )
        written += rows
        if commit == 0 and random.random() < 0.5:
            spark.sql(statements.set_properties(uri, {"delta.enableDeletionVectors": "true"}))
            spark.sql(statements.delete_rows(uri, ["id % 5 = 0"]))
            written = [row for row in written if row["id"] % 5]
            break  # other writers refuse deletion vectors
    return written


def _left(lake: Lake) -> set[int]:
    """The ids in the table, as deltalake reads them."""
    table = DeltaTable(lake.settings.table_uri(KEY))
    rows = QueryBuilder().register("t", table).execute("SELECT id FROM t")
    return {*pa.table(rows).column("id").to_pylist()}


def _left_by_spark(spark: SparkSession, lake: Lake) -> set[int]:
    frame = spark.read.format("delta").load(lake.settings.table_uri(KEY))
    return {row[0] for row in frame.select("id").collect()}


def _ms(value: Any) -> int:
    if not isinstance(value, datetime):
        return (value - datetime(1970, 1, 1).date()).days * 86_400_000
    zoned = value if value.tzinfo else value.replace(tzinfo=UTC)
    return (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
