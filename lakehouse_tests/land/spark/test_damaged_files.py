"""Damaged files are proven to be damaged. Those that end Spark are set aside, and the next run loads the others."""

from io import BytesIO
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException, SparkException
from pyspark.sql import SparkSession

from lakehouse import Append, Dms, Landing, Merge, Table
from lakehouse.base.errors import Transient
from lakehouse.lake.lake import Lake
from lakehouse.land import run as load
from lakehouse.land.ledger import landed_files
from lakehouse.land.plan import choose_files
from lakehouse.land.plan.batches import Batch
from lakehouse.land.spark.files import damaged_files
from lakehouse.materialize.run import write_table
from lakehouse.spark.errors import ended_spark
from lakehouse_tests.support.example_lake import rows_in

PREFIX = "landing/parts/"
GONE = SparkConnectGrpcException("server gone", grpc_status_code=grpc.StatusCode.UNAVAILABLE)
# The levels of a page with a hundred values, and the bits of its indices: seven.
LEVELS = b"\x03\x00\x00\x00\xc8\x01\x01\x07"
# The head of a run of 2^27 groups of eight indices, which take four gigabytes in memory.
GIANT_RUN = b"\x81\x80\x80\x80\x01"


@pytest.fixture(autouse=True)
def all_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose_files, "SPARK_READS_FROM_BYTES", 1)


def parquet_file(first: int, *, is_fatal: bool = False) -> bytes:
    """Three row groups of a hundred rows; a page of the last one may take all memory."""
    ids = range(first, first + 300)
    file = BytesIO()
    parts = pa.table({"id": ids, "name": [f"name {id_}" for id_ in ids]})
    pq.write_table(parts, file, row_group_size=100, compression="none")
    content = bytearray(file.getvalue())
    if is_fatal:
        place = content.rindex(LEVELS) + len(LEVELS)
        content[place : place + len(GIANT_RUN)] = GIANT_RUN
    return bytes(content)


def land_parts(lake: Lake) -> None:
    """Two good files, with ids below 300 and from 600 on, and a fatal one between them."""
    for number in range(3):
        content = parquet_file(number * 300, is_fatal=number == 1)
        lake.store.put(f"{PREFIX}LOAD{number}.parquet", content)


def source_of(format_name: Any, **words: Any) -> Landing:
    schema = "Op STRING, id BIGINT, name STRING"
    return Landing(prefix=PREFIX, format=format_name, schema=schema, **words)


def problems_in(lake: Lake, source: Landing, error: Exception) -> dict[str, str]:
    files = tuple(landed_files(lake.store, source))
    return damaged_files(lake, Batch(number=1, files=files, prefix=PREFIX), source, error)


def test_a_page_that_takes_all_memory_is_found(lake: Lake) -> None:
    land_parts(lake)
    ((name, problem),) = problems_in(lake, source_of("parquet"), GONE).items()
    assert name == "LOAD1.parquet"
    assert problem.startswith("Spark cannot read it to its end (")
    assert problem.endswith("). Land an undamaged copy")


def test_a_text_that_was_only_allocated_is_found(lake: Lake) -> None:
    mib = 1024 * 1024
    lines = b'{"id": 1}\n' * mib + b'{"id": 2}'
    lake.store.put(f"{PREFIX}good.json", lines + b" " * 15 * mib + b"\r" + b" " * 15 * mib)
    lake.store.put(f"{PREFIX}bad.json", lines + bytes(16 * mib) + b"\n" + lines)
    why = "Spark cannot read it to its end (a line has more than 16777216 bytes)"
    expected = {"bad.json": f"{why}. Land an undamaged copy"}
    assert problems_in(lake, source_of("json"), GONE) == expected


def failed_read(path: str) -> SparkException:
    return SparkException(f"[FAILED_READ_FILE.NO_HINT] Error while reading file {path}.\n")


def test_an_undamaged_file_is_not_set_aside(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    land_parts(lake)
    source = source_of("parquet")
    folder = f"{lake.settings.spark_root}/{PREFIX}"
    fatal = failed_read(f"{folder}LOAD1.parquet")
    assert problems_in(lake, source, failed_read(f"{folder}LOAD0.parquet")) == {}
    assert [*problems_in(lake, source, fatal)] == ["LOAD1.parquet"]
    throttled = Transient("s3: SlowDown")

    def read_part(*_: Any) -> bytes:
        raise throttled

    monkeypatch.setattr(lake.store, "read_part", read_part)
    with pytest.raises(Transient) as raised_by_storage:
        problems_in(lake, source, fatal)
    assert raised_by_storage.value is throttled


@pytest.mark.parametrize(
    ("error", "is_end"),
    [
        (GONE, True),
        (SparkException("Lost task 1.3: ExecutorLostFailure (executor 3 exited)"), True),
        (SparkException("[FAILED_READ_FILE.NO_HINT] Error while reading file x."), False),
        (ValueError("x"), False),
    ],
)
def test_the_end_of_a_server_or_an_executor_is_recognised(error: Exception, is_end: bool) -> None:
    assert ended_spark(error) is is_end


@pytest.mark.parametrize("is_planned", [True, False])
def test_if_spark_ended_its_file_goes_to_quarantine_and_the_next_run_loads_the_others(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_planned: bool
) -> None:
    land_parts(lake)
    table = Table(key="bronze/parts", source=source_of("parquet"), write=Append())
    if not is_planned:  # change data is counted before its batch is planned
        changes = source_of("parquet", changes=Dms())
        table = Table(key="bronze/parts", source=changes, write=Merge(keys=("id",)))

    def ended(*_: Any) -> None:
        raise GONE

    with monkeypatch.context() as patch:
        for step in ("parse_batch", "write_batch"):
            patch.setattr(load, step, ended)
        with pytest.raises(Transient, match="stopped answering"):
            write_table(lake, spark, table)
    outcome = write_table(lake, spark, table)
    ids = [id_ for (id_,) in rows_in(lake, table.key, "id")]
    assert sorted(ids) == [*range(300), *range(600, 900)]
    quarantined = rows_in(lake, f"quarantine/{table.key}", "source_file", "line")
    assert quarantined == [(f"{PREFIX}LOAD1.parquet", None)]
    assert outcome.rows_written == 600
    assert write_table(lake, spark, table).files_read == 0


def test_a_file_with_hadoops_checksums_of_other_content_is_set_aside(
    lake: Lake, spark: SparkSession
) -> None:
    land_parts(lake)
    lake.store.put(f"{PREFIX}LOAD1.parquet", parquet_file(300))
    checksums = parquet_file(0)[:32]
    lake.store.put(f"{PREFIX}.LOAD1.parquet.crc", b"crc\x00\x00\x00\x02\x00" + checksums)
    table = Table(key="bronze/parts", source=source_of("parquet"), write=Append())
    outcome = write_table(lake, spark, table)
    ((name, why),) = [(each.name, each.why) for each in outcome.set_aside]
    assert name == "LOAD1.parquet"
    assert "checksums next to it, .LOAD1.parquet.crc, are those of other content" in why
    assert sorted(rows_in(lake, table.key, "id")) == [
        (id_,) for id_ in (*range(300), *range(600, 900))
    ]


def test_a_file_that_grew_after_its_batch_was_planned_is_loaded_as_it_is_now(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of("json", required=("id",))
    table = Table(key="bronze/parts", source=source, write=Append())
    lines = {name: f'{{"id": {name}1}}\n{{"name": "without id {name}"}}\n' for name in "123"}
    for name, text in lines.items():
        lake.store.put(f"{PREFIX}{name}.json", text.encode())
    unpatched = load.write_batch

    def killed_after_the_quarantine(session: Any, batch: Any, *others: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(load.commit_rows, "write_rows", ended)
            unpatched(session, batch, *others)

    def ended(*_: Any, **__: Any) -> None:
        raise GONE

    with monkeypatch.context() as patch:
        patch.setattr(load, "write_batch", killed_after_the_quarantine)
        with pytest.raises(Transient, match="stopped answering"):
            write_table(lake, spark, table)
    grown = lines["2"] + '{"id": 22}\n'
    lake.store.put(f"{PREFIX}2.json", grown.encode())
    write_table(lake, spark, table)
    assert sorted(rows_in(lake, table.key, "id")) == [(11,), (21,), (22,), (31,)]
    quarantined = rows_in(lake, f"quarantine/{table.key}", "source_file", "line")
    assert sorted(quarantined, key=str) == [
        (f"{PREFIX}1.json", 2),
        (f"{PREFIX}2.json", 2),
        (f"{PREFIX}2.json", None),
        (f"{PREFIX}3.json", 2),
    ]
