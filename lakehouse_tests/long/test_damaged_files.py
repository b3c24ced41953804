"""Landed files that end a Spark server, for real, and reads that a bucket fails."""

import os
from pathlib import Path

import pytest
from pyspark.errors.exceptions.connect import SparkException

from lakehouse import Append, Table
from lakehouse.base.errors import Transient
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.land.plan import choose_files
from lakehouse.materialize.run import write_table
from lakehouse.spark.server import server
from lakehouse.spark.session import connect
from lakehouse_tests.conftest import own_settings, wait_until
from lakehouse_tests.land.spark.test_damaged_files import (
    PREFIX,
    land_parts,
    parquet_file,
    source_of,
)
from lakehouse_tests.s3_servers import BUCKET, s3_server
from lakehouse_tests.silent_server import Fault, faulty_server
from lakehouse_tests.support.example_lake import rows_in

GIB = 1024**3
CONTENTS = {"parquet": parquet_file(0), "json": b'{"id": 1}\n'}


def land_texts(lake: Lake) -> None:
    """A good text, and one that goes on with bytes that were only allocated."""
    for name, size_bytes in {"good": 0, "allocated": 2 * GIB}.items():
        lake.store.put(f"{PREFIX}{name}.json", b'{"id": 1}\n{"id": 2}\n')
        if size_bytes:
            os.truncate(Path(lake.settings.root, f"{PREFIX}{name}.json"), size_bytes)


@pytest.mark.parametrize(
    ("format_name", "fatal"), [("parquet", "LOAD1.parquet"), ("json", "allocated.json")]
)
def test_a_file_ends_the_server_once_and_then_the_others_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_name: str, fatal: str
) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
    settings, told = own_settings(tmp_path / "home"), list[str]()
    lake = open_lake(settings)
    table = Table(key="bronze/parts", source=source_of(format_name), write=Append())
    if format_name == "parquet":
        land_parts(lake)
    else:
        land_texts(lake)
    with server.supervised(settings, told.append):
        pid = server.status(settings).pid
        with pytest.raises(Transient):
            write_table(lake, connect(settings), table)
        wait_until("death and return are told", lambda: len(told) == 2)
        assert server.status(settings).pid != pid
        session = connect(settings)
        outcome = write_table(lake, session, table)
        assert outcome.rows_written == {"parquet": 600, "json": 2}[format_name]
        quarantined = rows_in(lake, f"quarantine/{table.key}", "source_file", "line")
        assert quarantined == [(f"{PREFIX}{fatal}", None)]
        assert len(told) == 2
        session.stop()


def test_a_read_that_a_bucket_fails_is_tried_again_and_sets_no_file_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)
    faults = list[Fault]()

    def fault_of(method: str, path: str) -> Fault | None:
        return faults[0] if faults and method == "GET" and "/landing/" in path else None

    with s3_server("moto", tmp_path) as told:
        for variable, value in told.items():
            monkeypatch.setenv(variable, value)
        with faulty_server(told["AWS_ENDPOINT_URL"], fault_of) as faulty:
            settings = own_settings(tmp_path / "home", LAKEHOUSE_ROOT=f"s3://{BUCKET}/lake")
            lake = open_lake(settings)
            for format_name, content in CONTENTS.items():
                lake.store.put(f"{PREFIX}good.{format_name}", content)
            monkeypatch.setenv("AWS_ENDPOINT_URL", faulty)  # Spark's
            with server.supervised(settings):
                session = connect(settings)
                for format_name in CONTENTS:
                    source = source_of(format_name)
                    table = Table(key=f"bronze/{format_name}", source=source, write=Append())
                    for status in (403, 500, 503):
                        faults.append(Fault(status=status))
                        with pytest.raises(SparkException, match="FAILED_READ_FILE"):
                            write_table(lake, session, table)
                        faults.clear()
                    outcome = write_table(lake, session, table)
                    assert not any(aside.is_quarantined for aside in outcome.set_aside)
                    assert outcome.rows_written == {"parquet": 300, "json": 1}[format_name]
                session.stop()
