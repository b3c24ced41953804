"""Files without a declared schema: it is inferred once, pinned, and used for ever, whatever is killed or deleted."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakehouse import Append, Landing, Overwrite, Table
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.batches import Batch
from lakehouse.core.ingest.inferred import GIVES_NO_SCHEMA
from lakehouse.engine.ingest.staging import stage
from lakehouse.engine.ingest.write import write_table
from lakehouse.engine.journal.planned_batches import landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import delta_writes
from lakehouse.engine.store import DiskStore
from lakehouse_tests.engine.example import columns_of, land, rows_in
from lakehouse_tests.kills import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JSON = Landing(
    prefix="landing/events/", format="json", required=("id",), derived={"twice": "2 * id"}
)
EVENTS = Table(key="bronze/events", source=JSON, write=Append(partition_by=("state",)))
CSV = Landing(prefix="landing/prices/", format="csv", new_columns="add")
PRICES = Table(key="bronze/prices", source=CSV, write=Overwrite())


def test_a_schema_is_inferred_once_and_pinned_whatever_is_killed_or_deleted(
    lake: Lake, spark: "SparkSession"
) -> None:
    land(
        lake,
        "a.json",
        [{"id": 1, "state": "x", "code": "007"}, {"id": 2, "state": "x", "price": 1}],
    )
    with killed_at(delta_writes, "write_frame", "before"):
        write_table(lake, spark, EVENTS)
    pinned = [("id", "BIGINT"), ("state", "STRING"), ("code", "STRING"), ("price", "BIGINT")]
    assert columns_of(lake, EVENTS) == [
        (*each, "landing/events/a.json", "infer") for each in pinned
    ]
    lake.store.delete([file.name for file in lake.store.list("_lakehouse/staged")])
    land(
        lake,
        "b.json",
        [{"id": 3, "state": "y", "price": 1.5}, {"id": 4, "state": "y", "x": 1}, {"code": "8"}],
    )
    outcome = write_table(lake, spark, EVENTS)
    assert (outcome.rows_written, outcome.rows_quarantined, outcome.rows_rescued) == (3, 2, 1)
    rows = [
        (1, "x", "007", None, 2, None),
        (2, "x", None, 1, 4, None),
        (4, "y", None, None, 8, '{"x": 1}'),
    ]
    names = ("id", "state", "code", "price", "twice", "_rescued")
    assert rows_in(lake, EVENTS.key, *names) == rows
    assert rows_in(lake, f"quarantine/{EVENTS.key}", "line", "reason") == [
        (1, "a field does not fit the schema"),
        (3, "required field id is missing"),
    ]
    lake.store.delete([file.name for file in lake.store.list(EVENTS.key)])
    declared = "price BIGINT, code STRING, state STRING, id"
    with pytest.raises(
        Refused,
        match=r"declares id STRING; the schema that was inferred .* and pinned has id BIGINT",
    ):
        write_table(lake, spark, replace(EVENTS, source=replace(JSON, schema=f"{declared} STRING")))
    write_table(lake, spark, replace(EVENTS, source=replace(JSON, schema=f"{declared} BIGINT")))
    assert rows_in(lake, EVENTS.key, *names) == rows


@pytest.mark.parametrize("format", ["parquet"])
def test_the_types_of_a_file_are_pinned_and_hold_its_values(
    lake: Lake, spark: "SparkSession", format: str
) -> None:
    row: dict[str, Any] = {
        "id": 1,
        "x": inf,
        "price": Decimal("12345678.90"),
        "day": date(2013, 1, 1),
        "at": datetime(2013, 1, 1, 5, 0, 0, 1, UTC),
    }
    rows, file = [row, dict.fromkeys(row)], BytesIO()
    if format == "parquet":
        types = [
            pa.int32(),
            pa.float64(),
            pa.decimal128(10, 2),
            pa.date32(),
            pa.timestamp("us", "UTC"),
        ]
        pq.write_table(pa.Table.from_pylist(rows, pa.schema([*zip(row, types, strict=True)])), file)
    else:
        decimal = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
        types = [
            "int",
            "double",
            decimal,
            {"type": "int", "logicalType": "date"},
            {"type": "long", "logicalType": "timestamp-micros"},
        ]
        fields = [
            {"name": name, "type": ["null", type_]} for name, type_ in zip(row, types, strict=True)
        ]
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    lake.store.put(f"landing/typed/1.{format}", file.getvalue())
    table = Table(
        key="bronze/typed", source=Landing(prefix="landing/typed/", format=format), write=Append()
    )
    assert write_table(lake, spark, table).rows_quarantined == 0
    assert [type_ for _, type_, *_ in columns_of(lake, table)] == [
        "BIGINT",
        "DOUBLE",
        "DECIMAL(10,2)",
        "DATE",
        "TIMESTAMP",
    ]
    found = (
        spark.read.format("delta").load(lake.settings.table_uri(table.key)).orderBy("_source_line")
    )
    assert [
        tuple(each)
        for each in found.selectExpr("id", "x", "price", "day", "unix_micros(at)").collect()
    ] == [
        (1, inf, row["price"], row["day"], 1_357_016_400_000_001),
        (None,) * 5,
    ]


def test_files_that_give_no_schema_are_set_aside_and_the_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.engine.ingest.landed_contents._READ_AT_ONCE_FILES", 3)
    store = DiskStore(tmp_path)
    for name, data in (
        ("a.json", b"[1]"),
        ("b.json", b"\n"),
        ("c.json.gz", b"x"),
        ("d.json", b'{"id": 1}'),
    ):
        store.put(f"landing/events/{name}", data)
    landing = replace(JSON, required=(), derived={})
    files = tuple(landed_files(store, landing))
    first = stage(store, EVENTS.key, Batch(number=1, files=files, prefix=landing.prefix), landing)
    assert {name: each.problem and each.problem[:20] for name, each in first.files.items()} == {
        "a.json": GIVES_NO_SCHEMA[:20],
        "b.json": None,
        "c.json.gz": "its gzip is damaged ",
    }
    assert (first.batch.part_count, first.batch.record_count, first.columns) == (0, 0, ())
    second = stage(
        store, EVENTS.key, Batch(number=2, files=files[3:], prefix=landing.prefix), landing
    )
    assert [(column.name, column.type, column.file) for column in second.columns] == [
        ("id", "BIGINT", "landing/events/d.json")
    ]
    assert second.batch.record_count == 1
