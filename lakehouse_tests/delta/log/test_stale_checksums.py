"""Hadoop's hidden checksum of a commit that was removed by hand does not make its successor unreadable."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakehouse.store import DiskStore


@pytest.mark.parametrize("writer", ["spark", "python"])
def test_a_commit_replaces_the_checksum_of_a_removed_one(
    spark: SparkSession, tmp_path: Path, writer: str
) -> None:
    table = f"delta.`{tmp_path}/orders`"
    spark.sql(f"CREATE TABLE {table} (id INT) USING delta")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    log = tmp_path / "orders/_delta_log"
    removed = log / f"{1:020}.json"
    content = removed.read_bytes()
    for file in (removed, log / f"{1:020}.crc"):
        file.unlink()
    checksum = log / f".{removed.name}.crc"
    checksum.write_bytes(b"crc\0" + (512).to_bytes(4, "big") + b"\1\2\3\4")
    if writer == "spark":
        spark.sql(f"INSERT INTO {table} VALUES (1)")
    else:
        assert DiskStore(tmp_path).put_if_absent(f"orders/_delta_log/{removed.name}", content)
    assert not checksum.exists()
    assert [row.id for row in spark.sql(f"SELECT id FROM {table}").collect()] == [1]
