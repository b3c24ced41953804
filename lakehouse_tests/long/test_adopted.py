"""Tables that deltalake writes, on S3 and on a disk, beside a lake on another disk: compacted, vacuumed, and read on by deltalake."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakehouse.base.settings import Settings
from lakehouse.compact.run import compact
from lakehouse.declare.adopted import Adopted
from lakehouse.declare.table import Table
from lakehouse.declare.vacuum import SHORT_RETENTION_RISK, Vacuum
from lakehouse.lake.find_tables import store_at
from lakehouse.lake.lake import open_lake
from lakehouse.spark.server import server
from lakehouse.spark.session import connect
from lakehouse.vacuum.lake_facts import LakeFacts
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.s3_servers import BUCKET, s3_server


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a lake on disk with a server of its own, in a world with a bucket."""
    home = tmp_path_factory.mktemp("adopted")
    with s3_server("moto", home) as told, pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        settings = own_settings(home)
        with server.supervised(settings):
            yield settings


def _write_eight_files(address: str, options: dict[str, str], *, by: list[str] | None) -> None:
    """One row per commit, in a table whose removed files may be deleted at once."""
    for number in range(8):
        rows = pa.table({"id": [number], "day": [f"2026-01-0{number % 2 + 1}"]})
        short = {"delta.deletedFileRetentionDuration": "interval 1 millisecond"}
        write_deltalake(
            address,
            rows,
            mode="append",
            partition_by=by,
            storage_options=options,
            configuration=short,
        )


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
@pytest.mark.parametrize("place", ["s3", "disk"])
def test_a_table_elsewhere_is_compacted_and_vacuumed_and_read_on(
    settings: Settings, tmp_path: Path, place: str, partitioned: bool
) -> None:
    address = f"s3://{BUCKET}/w/{partitioned}/orders" if place == "s3" else str(tmp_path / "orders")
    options = {
        **{name: value for name, value in os.environ.items() if name.startswith("AWS_")},
        "AWS_ALLOW_HTTP": "true",
    }
    _write_eight_files(address, options, by=["day"] if partitioned else None)
    store = store_at(address)
    store.put("somebody_elses.parquet", b"precious")
    write = Adopted(uri=address)
    table = Table(
        key=f"silver/{place}_{partitioned}".lower(),
        write=write,
        vacuum=Vacuum(accepts_short_retention=SHORT_RETENTION_RISK),
    )
    lake, spark = open_lake(settings, tables=[table]), connect(settings)

    outcome = compact(lake, spark, table)
    assert (outcome.files_removed, outcome.files_added, outcome.rows_verified) == (
        8,
        2 if partitioned else 1,
        8,
    )
    done = vacuum(LakeFacts(lake, [table]), lambda: spark, table)
    assert (done.plan.mode, done.deleted_files, len(done.spared), dict(done.failed)) == (
        "LITE",
        8,
        0,
        {},
    )
    data = sorted(
        file.name
        for file in store.list("")
        if "_delta_log" not in file.name and not file.name.endswith(".crc")
    )
    assert len(data) == 1 + outcome.files_added and "somebody_elses.parquet" in data
    assert not any("_lakehouse" in file.name for file in store.list(""))

    own = replace(table, write=replace(write, orphans="delete"))
    done = vacuum(LakeFacts(lake, [own]), lambda: spark, own)
    assert (done.plan.mode, [each.name for each in done.plan.candidates]) == (
        "FULL",
        ["somebody_elses.parquet"],
    )
    assert store.stat("somebody_elses.parquet") is None
    read = DeltaTable(address, storage_options=options)
    assert sorted(read.to_pyarrow_table().column("id").to_pylist()) == list(range(8))
    write_deltalake(read, pa.table({"id": [8], "day": ["2026-01-01"]}), mode="append")
    assert not compact(lake, spark, table).plan.bins
