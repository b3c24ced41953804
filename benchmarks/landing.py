"""Loads a million landed events from 20,000 small files, and large files of each format.

`python -m benchmarks.landing [FILES] [EVENTS PER FILE] [RECORDS]`, on its own lake and server. The
large files hold RECORDS records of eight columns per format. Their seconds are compared with the
bare statement that reads the same files with the declared schema and writes a Delta table. For
requests per file: `python -m benchmarks.requests "landed batch of 100 files, engine"`.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.figures import Figure, alone, middle, ratio, timed
from benchmarks.fresh import fresh
from benchmarks.own_lake import own_lake
from lakehouse import Append, Dms, Landing, Merge, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.server.conf import TOKEN_VARIABLE
from lakehouse.spark.session import connect
from lakehouse_tests.cluster import ConnectServer, deployed_conf, standalone
from lakehouse_tests.conftest import own_settings

PREFIX = "landing/events/"
EVENTS = Table(
    key="bronze/events",
    source=Landing(
        prefix=PREFIX,
        format="json",
        schema="id BIGINT, at TIMESTAMP, state STRING, amount DOUBLE",
        required=("id",),
    ),
    write=Append(),
)
# The large files of a format.
_PARTS = 2
_ROUNDS = 3
# Formats, how many times the number of records, rounds, and the most that landing may take over the
# bare statement.
_LARGE = (
    *(("parquet", 1, _ROUNDS, 1.5), ("csv", 1, _ROUNDS, 1.5), ("json", 1, _ROUNDS, 2.5)),
    *(("parquet", 10, 1, 1.5), ("csv", 10, 1, 1.5), ("json", 10, 1, 2.5), ("dms", 2.5, 2, 1.5)),
)
ORDERS = (
    "id BIGINT, customer STRING, at TIMESTAMP, amount DECIMAL(12,2), score DOUBLE, paid BOOLEAN, "
    "day DATE, note STRING"
)


def main(files: int = 20_000, events: int = 50, records: int = 2_000_000) -> list[Figure]:
    """Figures of a backlog of small files, and of large files against bare Spark statements."""
    return [*_small_files(files, events), *_large_files(records), *_on_clusters(records)]


def _on_clusters(records: int) -> list[Figure]:
    """The time of two workers over that of one, each with one core, to load large CSV files."""
    sizes = {records: _ROUNDS, 10 * records: 1}  # the second size on servers that are warm by then
    seconds = {(workers, size): list[float]() for workers in (1, 2) for size in sizes}
    for workers in (1, 2):
        with TemporaryDirectory() as folder, ExitStack() as stack:
            cluster = stack.enter_context(standalone(Path(folder), {}, workers=workers))
            server = ConnectServer(cluster=cluster, conf=deployed_conf({}))
            environment = stack.enter_context(server.running()).environment
            os.environ[TOKEN_VARIABLE] = environment[TOKEN_VARIABLE]
            lake = open_lake(own_settings(Path(folder, "home"), **environment))
            spark = connect(lake.settings)
            for size, rounds in sizes.items():
                source = _landed_orders(lake, "csv", size)
                for number in range(rounds):
                    table = Table(key=f"bronze/csv{size}_{number}", source=source, write=Append())
                    measured = timed(partial(write_table, lake, spark, table))[0]
                    seconds[workers, size].append(measured)
            spark.stop()
    return [
        ratio(
            f"{size:,} records of csv by two workers over one",
            seconds[2, size],
            seconds[1, size],
            row="P17",
            at_most=0.6,
        )
        for size in sizes
    ]


def _landed_orders(lake: Lake, name: str, records: int) -> Landing:
    """Lands the large files of a format; `dms` is a full load of DMS in Parquet."""
    prefix = f"landing/{name}{records}/"
    folder = Path(lake.settings.root, prefix)
    folder.mkdir(parents=True)
    is_dms = name == "dms"
    file, suffix = ("LOAD", "parquet") if is_dms else ("", name)
    for part in range(_PARTS):
        fresh(write_orders, f"{folder}/{file}{part:08}.{suffix}", part * records, records // _PARTS)
    if is_dms:
        schema = f"Op STRING, {ORDERS}"
        return Landing(prefix=prefix, format="parquet", schema=schema, changes=Dms())
    return Landing(prefix=prefix, format=name, schema=ORDERS, required=("id",))


def _large_files(records: int) -> list[Figure]:
    figures = list[Figure]()
    with own_lake() as (lake, spark):
        for name, times, rounds, goal in _LARGE:
            count = round(records * times) // _PARTS * _PARTS
            subject = f"{count:,} records of {name}"
            source = _landed_orders(lake, name, count)
            bare, landed = list[float](), list[float]()
            missing = 0
            for number in range(rounds):
                reader = spark.read.schema(ORDERS).option("header", True).format(source.format)
                copy = reader.load(f"{lake.settings.root}/{source.prefix}").write.format("delta")
                place = f"{name}{count}_{number}"
                bare.append(timed(partial(copy.save, f"{lake.settings.root}/bare{place}"))[0])
                write = Merge(keys=("id",)) if source.changes else Append()
                table = Table(key=f"bronze/{place}", source=source, write=write)
                seconds, outcome = timed(partial(write_table, lake, spark, table))
                landed.append(seconds)
                missing += count - outcome.rows_written
            over = f"{subject} over the bare statement"
            lost = f"rows missing from {subject}"
            figures += [
                ratio(over, landed, bare, row="P16", at_most=goal),
                Figure(name=lost, value=missing, at_most=0, holds_at_any_size=True),
                middle(subject, landed, unit="s", peers={"bare": median(bare)}),
            ]
    peak = _peak_bytes() / 2**20
    memory = Figure(name="memory of the client", value=peak, unit="MiB", row="P16", at_most=400)
    return [*figures, memory]


def write_orders(name: str, first: int, count: int) -> None:
    """A file of `count` orders with ids from `first` on."""
    path = Path(name)
    ids = np.arange(first, first + count)
    seconds = pa.array(1_760_000_000 + ids, pa.timestamp("s", "UTC"))
    days = pa.array((19_000 + ids % 900).astype("int32")).cast(pa.date32())
    columns = {
        "id": ids,
        "customer": [f"customer-{number % 50_000}" for number in ids],
        "at": seconds,
        "amount": pa.array((ids * 7919 % 100_000).astype("int32")).cast(pa.decimal128(12, 2)),
        "score": ids / 7,
        "paid": ids % 2 == 0,
        "day": days,
        "note": [f"note {number * 7919 % 1_000_003} of the order" for number in ids],
    }
    orders = pa.table(columns)
    if path.suffix == ".parquet":
        pq.write_table(orders, path)
        return
    orders = orders.set_column(2, "at", seconds.cast(pa.string()))
    if path.suffix == ".csv":
        csv.write_csv(orders, path)
        return
    orders = orders.set_column(6, "day", days.cast(pa.string()))
    orders = orders.set_column(3, "amount", orders["amount"].cast(pa.float64()))
    with path.open("w") as file:
        for batch in orders.to_batches(max_chunksize=100_000):
            file.writelines(f"{json.dumps(order)}\n" for order in batch.to_pylist())


def _small_files(files: int, events: int) -> list[Figure]:
    """Seconds, memory and files of a backlog of landed files."""
    with own_lake() as (lake, spark):
        folder = Path(lake.settings.root, PREFIX)
        folder.mkdir(parents=True)
        for number in range(files):
            (folder / f"{number:06}.json").write_text(
                "\n".join(event_lines(number * events, events))
            )
        began = time.monotonic()
        outcome = write_table(
            lake,
            spark,
            EVENTS,
            tell=lambda text: print(f"  {time.monotonic() - began:6.1f} s {text}", flush=True),
        )
        seconds = time.monotonic() - began
    rows = outcome.rows_written
    return [
        Figure(
            name="rows missing from the backlog",
            value=files * events - rows,
            at_most=0,
            holds_at_any_size=True,
        ),
        Figure(
            name=f"{rows:,} events of {files:,} landed files to bronze", value=seconds, unit="s"
        ),
        Figure(name="landed files a second", value=files / seconds),
    ]


def event_lines(first: int, count: int) -> Iterator[str]:
    """`count` landed lines with ids from `first` on."""
    for number in range(first, first + count):
        yield json.dumps(
            {
                "id": number,
                "at": f"2026-11-22T{number % 24:02}:00:00Z",
                "state": f"state {number % 7}",
                "amount": number / 7,
            }
        )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(alone(main))
