"""Plans leave cold files alone, and Spark rewrites what deltalake cannot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.reasons import Reason
from lakehouse.compact.assess import note_cold_files, recent_compactions
from lakehouse.compact.run import compact, plan
from lakehouse.declare.policies import Compaction
from lakehouse.declare.table import Append, Landing, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.lake.state_tables import read_records
from lakehouse.store import S3Store
from lakehouse.vacuum.inventory.plan import Reconciliation
from lakehouse.vacuum.inventory.run import scan
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.deltalake_tables import KEY, actions_of, adopted, lake_with, no_spark
from lakehouse_tests.log_builder import LogBuilder

COLD = Table(
    key="bronze/t",
    source=Landing(prefix="landing/t/", format="json", schema="id BIGINT"),
    write=Append(),
    compaction=Compaction(min_small_files=2),
)


def reconciled(lake: Lake) -> Reconciliation:
    return scan(lake, now_ms=now_ms()).reconciliation


def test_a_partition_with_a_file_that_an_inventory_shows_as_cold_is_not_compacted(
    bucket: str, tmp_path: Path
) -> None:
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=f"s3://{bucket}/some/lake"))
    names = [f"d={day}/{name}" for day in (1, 2) for name in ("a b", "c")]
    story = LogBuilder(lake.store, COLD.key).create(partition_by=["d"])
    story.append([(name.replace(" ", "%20"), 200) for name in names]).store_data()
    assert (planned := plan(lake, COLD)) is not None and planned.files_removed == 4
    assert isinstance(lake.store, S3Store)
    for name, storage_class in (("d=1/a b", "GLACIER_IR"), ("d=2/c", "STANDARD_IA")):
        object_key = f"some/lake/{COLD.key}/{name}"
        itself: Any = {"Bucket": bucket, "Key": object_key}
        lake.store.client.copy_object(**itself, CopySource=itself, StorageClass=storage_class)
        note_cold_files(lake, reconciled(lake))
        again = plan(lake, COLD)
        assert again is not None
        if name == "d=1/a b":
            assert {dict(bin_.partition)["d"] for bin_ in again.bins} == {"2"}
    assert (again.reason, again.bins) == (Reason.COLD_FILES, ())
    outside = replace(lake, elsewhere={COLD.key: f"s3a://another/{COLD.key}"})
    note_cold_files(outside, Reconciliation(tables=(), unclaimed=()))
    assert len(read_records(lake, "cold_files")) == 1
    note_cold_files(lake, Reconciliation(tables=(), unclaimed=()))
    assert read_records(lake, "cold_files") == {}


def test_the_first_plan_of_a_table_is_priced_by_the_compactions_of_others(tmp_path: Path) -> None:
    uris = [str(tmp_path / name) for name in ("first", "second")]
    for uri in uris:
        for first in range(4):
            write_deltalake(uri, pa.table({"id": [first]}), mode="append")
    first, second = adopted(uris[0]), adopted(uris[1])
    lake = lake_with(first, tmp_path / "home")
    before = plan(lake, first)
    assert before is not None and before.estimate.source == "defaults"
    compact(lake, no_spark, first)
    of_second = plan(lake_with(second, tmp_path / "home"), second)
    assert of_second is not None
    assert (of_second.estimate.source, of_second.files_removed) == ("lake", 4)


def unreadable(folder: Path, kind: str) -> str:
    """A table whose first file deltalake cannot read."""
    uri = str(folder / kind)
    if kind == "text":
        for first in (0, 10):
            write_deltalake(uri, pa.table({"id": [first], "region": ["RXUNION"]}), mode="append")
    else:
        item = pa.struct([("a", pa.int64()), ("b", pa.string())])
        grown = pa.map_(pa.string(), item)
        for first in (0, 10):
            maps = pa.array([[("k", {"a": 1, "b": "z"})]], grown)
            write_deltalake(uri, pa.table({"id": [first], "region": maps}), mode="append")
    [path] = [each["add"]["path"] for each in actions_of(uri, 0) if "add" in each]
    file = Path(uri, path)
    table = pq.read_table(file)
    if kind == "text":
        text = pa.array([b"R\xc9UNION"], pa.binary()).view(pa.string())
        table = table.set_column(1, "region", text)
    else:
        old = pa.map_(pa.string(), pa.struct([("a", pa.int64())]))
        table = table.set_column(1, "region", pa.array([[("k", {"a": 1})]], old))
    size = file.stat().st_size
    pq.write_table(table, file)
    log = Path(uri, "_delta_log", f"{0:020}.json")
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))
    return uri


@pytest.mark.parametrize("kind", ["text", "struct in a map"])
def test_what_a_declared_deltalake_cannot_rewrite_is_refused(tmp_path: Path, kind: str) -> None:
    uri = unreadable(tmp_path, kind)
    lake = lake_with(adopted(uri), tmp_path / "home")
    why = r"deltalake cannot rewrite the planned files \(.+\)"
    for _ in range(2):
        with pytest.raises(Refused, match=f'{why}. Use engine="spark"'):
            compact(lake, no_spark, adopted(uri))
    assert recent_compactions(lake, KEY) == []  # no failure that the breaker counts
    assert not (lake.settings.home / "workshops" / KEY.replace("/", ".")).exists()


@pytest.mark.long
def test_spark_compacts_what_deltalake_cannot_rewrite(tmp_path: Path, spark: SparkSession) -> None:
    for kind in ("text", "struct in a map"):
        uri = unreadable(tmp_path, kind)
        declared = adopted(uri, Compaction(min_small_files=2))
        lake = lake_with(declared, tmp_path / f"home of {kind}")

        def no_java() -> SparkSession:
            raise Refused("Spark needs Java")

        with pytest.raises(Refused, match="Spark needs Java"):
            compact(lake, no_java, declared)
        readable = "hex(region)" if kind == "text" else "to_json(region)"

        def content(uri: str = uri, readable: str = readable) -> list[str]:
            rows = spark.read.format("delta").load(uri).selectExpr("id", readable)
            return sorted(map(str, rows.collect()))

        before = content()
        merged = compact(lake, spark, declared).entry.compaction
        assert (merged.engine, merged.files_removed, merged.files_added) == ("spark", 2, 1)
        assert content() == before
