"""The same Parquet rows in one large file, which Spark reads, and in many small ones, which Arrow reads."""

import json
from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakehouse import Append, Landing, Table
from lakehouse.lake.lake import Lake
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse_tests.support.example_lake import rows_of

DAYS = (0, -1, 19_737, -141_427, -141_428, -719_162, -719_163, 2_932_896, 2_932_897)
TEXTS = (
    "",
    "a",
    "1",
    "-7",
    "1.50",
    "1e2",
    "NaN",
    "true",
    "2024-02-29",
    "2024-02-29T12:00:00Z",
    "9" * 20,
)
FLOATS = (0.0, -0.0, 0.1, 1.5, 1e10, 1e20, 1e300, float("nan"), float("inf"))
# For each type of the file, some values as Arrow stores them.
VALUES: Sequence[tuple[pa.DataType, Sequence[Any]]] = (
    (pa.bool_(), (True, False)),
    (pa.int8(), (-128, 0, 127)),
    (pa.uint8(), (0, 255)),
    (pa.int16(), (-(2**15), 9)),
    (pa.uint16(), (2**16 - 1,)),
    (pa.int32(), (-(2**31), 1, 12_345)),
    (pa.uint32(), (2**32 - 1,)),
    (pa.int64(), (-(2**63), 7, 2**53 + 1, 2**63 - 1)),
    (pa.float32(), FLOATS[:5] + FLOATS[7:]),
    (pa.float64(), FLOATS),
    (pa.decimal128(7, 2), (Decimal("1.50"), Decimal("-99999.99"), Decimal(0))),
    (pa.decimal128(38, 0), (Decimal(1), Decimal(10**38 - 1))),
    (pa.decimal128(20, 5), (Decimal("1.00005"), Decimal("999999.99500"))),
    (pa.date32(), DAYS),
    (pa.timestamp("us", "UTC"), [day * 86_400_000_000 - 1 for day in DAYS]),
    (pa.timestamp("us"), [day * 86_400_000_000 for day in DAYS]),
    (pa.timestamp("ms", "UTC"), [day * 86_400_000 + 1 for day in DAYS]),
    (pa.timestamp("ns"), (0, -1, -1_500, 1_700_000_000_000_016_001, 2**63 - 1)),
    (pa.string(), TEXTS),
    (pa.binary(), [each.encode() for each in TEXTS] + [b"\xff\x00"]),
)
TYPES = ("BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL(8, 2)", "DATE", "TIMESTAMP", "STRING", "BINARY")  # fmt: skip


def drawn_rows() -> pa.Table:
    """One row per value, in the column of its type; the other columns are null."""
    count = sum(len(values) for _, values in VALUES)
    columns: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int64())}
    start = 0
    for number, (kind, values) in enumerate(VALUES):
        is_stored = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        stored = kind if not is_stored else pa.int32() if kind == pa.date32() else pa.int64()
        padded = [None] * start + [*values] + [None] * (count - start - len(values))
        columns[f"c{number}"] = pa.array(padded, stored).cast(kind)
        start += len(values)
    return pa.table(columns)


def as_file(rows: pa.Table) -> bytes:
    file = BytesIO()
    pq.write_table(rows, file)
    return file.getvalue()


def loaded(lake: Lake, spark: SparkSession, table: Table) -> tuple[list[str], list[str]]:
    """The rows, and the quarantined ones with their reasons."""
    names = [name for name in table.landing.column_names if not name.startswith("_")]
    rows = [repr(row) for row in rows_of(spark, lake, table.key, *names)]
    bad = rows_of(spark, lake, f"quarantine/{table.key}", "reason", "raw")
    texts = [f"{json.loads(raw)['id']}: {reason}, {raw}" for reason, raw in bad]
    return sorted(rows), sorted(texts)


@pytest.mark.parametrize("type_", TYPES)
def test_a_value_of_any_type_is_the_same_in_a_large_file_and_in_a_small_one(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, type_: str
) -> None:
    rows = drawn_rows()
    fields = ", ".join(f"c{number} {type_}" for number in range(len(VALUES)))
    tables = dict[str, Table]()
    for size in ("large", "small"):
        source = Landing(prefix=f"landing/{size}/", format="parquet", schema=f"id BIGINT, {fields}")
        tables[size] = Table(key=f"bronze/{size}", source=source, write=Append())
    lake.store.put("landing/large/all.parquet", as_file(rows))
    for number in range(rows.num_rows):
        lake.store.put(f"landing/small/{number:03}.parquet", as_file(rows.slice(number, 1)))
    counts = dict[str, int]()
    for size, from_bytes in (("large", 1), ("small", 2**40)):
        monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", from_bytes)
        outcome = write_table(lake, spark, tables[size])
        counts[size] = outcome.rows_written
        assert outcome.rows_written + outcome.rows_quarantined == rows.num_rows
    assert counts["large"] == counts["small"]
    large_rows, large_quarantine = loaded(lake, spark, tables["large"])
    small_rows, small_quarantine = loaded(lake, spark, tables["small"])
    assert {*large_rows} ^ {*small_rows} == set()
    assert {*large_quarantine} ^ {*small_quarantine} == set()
