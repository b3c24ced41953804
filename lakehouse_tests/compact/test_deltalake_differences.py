"""What Spark reads from files that deltalake rewrote: every value, and every row."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from lakehouse.base.errors import Refused
from lakehouse.compact.run import compact
from lakehouse_tests.compact.test_deltalake_run import orders
from lakehouse_tests.deltalake_tables import actions_of, adopted, lake_with, no_spark


@pytest.mark.parametrize(
    ("number", "metadata", "found"),
    [
        ("Number", {}, "the column name Number in another case than the table"),
        ("number", {"org.apache.spark.version": "2.4.8"}, "dates of an old calendar"),
        ("number", {"org.apache.spark.legacyDateTime": ""}, "dates of an old calendar"),
        ("number", {"org.apache.spark.version": "4.2.0"}, None),
    ],
)
def test_a_file_that_spark_reads_in_another_way_is_refused(
    tmp_path: Path, number: str, metadata: dict[str, str], found: str | None
) -> None:
    """deltalake writes nulls for `Number`, and a day number that Spark reads as another date."""
    uri, lake = orders(tmp_path)
    [add] = [each["add"] for each in actions_of(uri, 2) if "add" in each]
    path, log = f"{uri}/{add['path']}", Path(uri, "_delta_log", f"{2:020}.json")
    table = pq.read_table(path).rename_columns({"number": number})
    pq.write_table(table.replace_schema_metadata(metadata), path)
    size = f'"size":{Path(path).stat().st_size}'
    log.write_text(log.read_text().replace(f'"size":{add["size"]}', size))
    files = {*Path(uri).iterdir()}
    if found is None:
        assert compact(lake, no_spark, adopted(uri)).entry.compaction.files_removed == 4
        return
    with pytest.raises(Refused, match=f'{found}. Use engine="spark"'):
        compact(lake, no_spark, adopted(uri))
    assert {*Path(uri).iterdir()} == files


def test_bounds_that_deltalake_rounds_or_that_ignore_nan_are_not_committed(tmp_path: Path) -> None:
    """Readers would skip the file: deltalake 1.6.6 writes 9223372036854775807 for 9…9."""
    uri = str(tmp_path / "orders")
    inner = pa.struct([("total", pa.decimal128(17, 2)), ("count", pa.int64())])
    for number in range(2):
        table = pa.table(
            {
                "id": [number],
                "ratio": [float("nan") if number else 1.0],
                "tags": [["a"]],
                "price": pa.array([Decimal("1.25")], pa.decimal128(15, 2)),
                "key": pa.array([Decimal("9" * 38)], pa.decimal128(38, 0)),
                "of": pa.array([{"total": Decimal("90071992547409.93"), "count": 7}], inner),
            }
        )
        write_deltalake(uri, table, mode="append")
    compact(lake_with(adopted(uri), tmp_path / "home"), no_spark, adopted(uri))
    [added] = [each["add"] for each in actions_of(uri, 2) if "add" in each]
    statistics = json.loads(added["stats"])
    assert statistics["minValues"] == {"id": 0, "price": 1.25, "of": {"count": 7}}
    assert statistics["maxValues"] == {"id": 1, "price": 1.25, "of": {"count": 7}}
    assert (statistics["numRecords"], statistics["nullCount"]["key"]) == (2, 0)
    # Spark 4.2 skips the row group for ratio > 5, although NaN is larger.
    row_group = pq.read_metadata(f"{uri}/{added['path']}").row_group(0)
    columns = [row_group.column(place) for place in range(row_group.num_columns)]
    assert [each.path_in_schema for each in columns if each.statistics is None] == ["ratio"]
    assert {each.compression for each in columns} == {"ZSTD"}
