"""Retried lines of CSV, and rows of Parquet and Avro."""

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse import Append, Csv, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.land.quarantine.run import retry
from lakehouse.materialize.run import write_table
from lakehouse_tests.land.quarantine.test_run import of
from lakehouse_tests.support.example_lake import rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    [aside] = write_table(lake, spark, turned).set_aside
    assert aside.is_quarantined and aside.why.endswith("and not name;code")
    assert retry(of(lake, spark, mended), [], dry_run=False).files == 1
    write_table(lake, spark, mended)
    assert rows_in(lake, codes.key, "code", "name", "_rescued") == [
        ("A", "one", '{"more": "1"}'),
        ("Bé\n", None, '{"more": "2"}'),
    ]


def test_rows_of_parquet_are_copied_from_their_file_and_stay_where_it_is_gone(
    lake: Lake, spark: "SparkSession"
) -> None:
    source = Landing(
        prefix="landing/prices/",
        format="parquet",
        schema="id BIGINT, price DECIMAL(9,2), at TIMESTAMP, data BINARY",
        required=("id",),
    )
    prices = Table(key="bronze/prices", source=source, write=Append())
    rows = pa.table(
        {
            "id": pa.array([1, None, None], pa.int64()),
            "price": pa.array(["1.50", "2.25", "3.75"]).cast(pa.decimal128(9, 2)),
            "at": pa.array([0, 1_500, None], pa.timestamp("ms", "UTC")),
            "data": pa.array([b"\0", b"\xff", None]),
            "tags": pa.array([[], ["a"], ["b", None]]),
        }
    )
    for name, rows_per_group in (("a", 1), ("b", 3)):
        content = io.BytesIO()
        pq.write_table(rows, content, row_group_size=rows_per_group)
        lake.store.put(f"{source.prefix}{name}.parquet", content.getvalue())
    write_table(lake, spark, prices)
    lake.store.delete([f"{source.prefix}b.parquet"])
    mended = replace(prices, source=replace(source, required=()))
    done = retry(of(lake, spark, mended), [], dry_run=False)
    [(why, count)] = done.left.items()
    assert (done.lines, count) == (2, 2)
    assert why.startswith("their landed file is gone, was changed, or is too large")
    write_table(lake, spark, mended)
    epoch = datetime.fromtimestamp(0, UTC)
    first = (1, Decimal("1.50"), epoch, b"\0", '{"tags": []}')
    found = rows_in(lake, prices.key, "id", "price", "at", "data", "_rescued")
    assert found == [
        first,
        first,
        (None, Decimal("2.25"), epoch + timedelta(milliseconds=1_500), b"\xff", '{"tags": ["a"]}'),
        (None, Decimal("3.75"), None, None, '{"tags": ["b", null]}'),
    ]


def test_rows_of_avro_are_copied_from_their_file(lake: Lake, spark: "SparkSession") -> None:
    source = Landing(
        prefix="landing/sizes/", format="avro", schema="id BIGINT, size DOUBLE", required=("id",)
    )
    sizes = Table(key="bronze/sizes", source=source, write=Append())
    schema = {
        "type": "record",
        "name": "size",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "size", "type": ["null", "float", "double", "int"]},
        ],
    }
    rows = [{"id": None if number % 2 else number, "size": number} for number in range(6)]
    content = io.BytesIO()
    fastavro.writer(content, schema, rows, codec="deflate", sync_interval=8)
    lake.store.put(f"{source.prefix}a.avro", content.getvalue())
    write_table(lake, spark, sizes)
    assert retry(of(lake, spark, sizes), [], dry_run=False).lines == 3
    lake.store.delete([f"{source.prefix}a.avro"])
    write_table(lake, spark, replace(sizes, source=replace(source, required=())))
    assert rows_in(lake, sizes.key, "id", "size") == [
        (0, 0),
        (2, 2),
        (4, 4),
        (None, 1),
        (None, 3),
        (None, 5),
    ]
