"""Retried lines of CSV and rows of Parquet, and retries that were killed."""

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Append, Csv, Landing, Table
from lakehouse.engine.ingest.quarantine.retry import retry
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.lake import Lake
from lakehouse_tests.engine.example import rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from lakehouse_tests.engine.ingest.quarantine.test_retry import (
    A,
    of,
    of_refused,
    refused,
    retry_killed_before_the_lines_left,
)

__all__ = ["of_refused", "refused"]


def _repeated(lake: Lake, spark: "SparkSession") -> None:
    assert retry(of(lake, spark), [A], dry_run=False).lines == 0


def _of_all(lake: Lake, spark: "SparkSession") -> None:
    assert retry(of(lake, spark), [], dry_run=False).lines == 0


def test_lines_of_csv_keep_their_fields_and_need_the_same_ones_in_the_declaration(
    lake: Lake, spark: "SparkSession"
) -> None:
    source = Landing(
        prefix="landing/codes/",
        format="csv",
        schema="code STRING, name STRING",
        required=("name",),
        null_value="NA",
        csv=Csv(delimiter=";"),
        encoding="cp1252",
    )
    codes = Table(key="bronze/codes", source=source, write=Append())
    text = 'code;more;name\nA;1;one\n"Bé\n";2;NA'
    lake.store.put(f"{source.prefix}a.csv", text.encode("cp1252"))
    write_table(lake, spark, codes)
    lenient = replace(source, required=())
    turned = replace(codes, source=replace(lenient, schema="name STRING, code STRING"))
    done = retry(of(lake, spark, turned), [], dry_run=False)
    assert (done.lines, done.left) == (
        0,
        {"the lines were read with other fields: code;name": 1},
    )
    mended = replace(codes, source=lenient)
    assert retry(of(lake, spark, mended), [], dry_run=False).lines == 1
    # The declaration changes again before the lines are loaded.
    outcome = write_table(lake, spark, turned)
    [aside] = outcome.set_aside
    assert aside.is_quarantined and "the declaration has name;code" in aside.why
    assert retry(of(lake, spark, mended), [], dry_run=False).files == 1
    write_table(lake, spark, mended)
    assert rows_in(lake, codes.key, "code", "name", "_rescued") == [
        ("A", "one", '{"more": "1"}'),
        ("Bé\n", None, '{"more": "2"}'),
    ]


def test_rows_of_parquet_are_landed_again_as_json(lake: Lake, spark: "SparkSession") -> None:
    source = Landing(
        prefix="landing/prices/",
        format="parquet",
        schema="id BIGINT, price DECIMAL(9,2), at TIMESTAMP, data BINARY",
        required=("id",),
    )
    prices = Table(key="bronze/prices", source=source, write=Append())
    content = io.BytesIO()
    rows = pa.table(
        {
            "id": pa.array([1, None], pa.int64()),
            "price": pa.array(["1.50", "2.25"]).cast(pa.decimal128(9, 2)),
            "at": pa.array([0, 1_500], pa.timestamp("ms", "UTC")),
            "data": pa.array([b"\0", b"\xff"]),
        }
    )
    pq.write_table(rows, content)
    lake.store.put(f"{source.prefix}a.parquet", content.getvalue())
    write_table(lake, spark, prices)
    mended = replace(prices, source=replace(source, required=()))
    assert retry(of(lake, spark, mended), [], dry_run=False).lines == 1
    write_table(lake, spark, mended)
    epoch = datetime.fromtimestamp(0, UTC)
    assert rows_in(lake, prices.key, "id", "price", "at", "data") == [
        (1, Decimal("1.50"), epoch, b"\0"),
        (None, Decimal("2.25"), epoch + timedelta(milliseconds=1_500), b"\xff"),
    ]


@pytest.mark.parametrize("continued", [_repeated, _of_all])
def test_a_retry_killed_before_the_lines_left_the_quarantine_lands_them_once(
    refused: Lake, spark: "SparkSession", continued: Callable[[Lake, "SparkSession"], None]
) -> None:
    retry_killed_before_the_lines_left(refused, spark, continued)
