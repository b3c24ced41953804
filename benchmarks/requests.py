"""Counts the S3 requests of each operation by kind, for our Python client and for Spark's JVM.

`python -m benchmarks.requests [--json] [NAME …]`. Each of `OPERATIONS` is a function that prepares
what it needs and returns the step that is counted. `LIST of logs` are LISTs below a `_delta_log`
folder: how often a log was read.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3

from benchmarks.figures import Figure, timed
from benchmarks.own_lake import landed_table
from benchmarks.s3_server import ask, served
from lakehouse import Compaction
from lakehouse.assets.events import open_instance
from lakehouse.base.settings import Settings
from lakehouse.cli.dagster_runs import AssetRun, run_assets
from lakehouse.compact.run import compact
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.materialize.run import write_table
from lakehouse.spark.server import server
from lakehouse.spark.session import connect
from lakehouse.watch.due import plan_operations
from lakehouse_tests.conftest import own_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET, FILES = "lake", 100
LANDED = f"landed batch of {FILES} files"
# The one table of the lake, which finds it here.
events = landed_table(
    "bronze/events", "id STRING, amount BIGINT", compaction=Compaction(min_small_files=4)
)
KINDS = ("HEAD", "GET", "LIST", "LIST of logs", "PUT", "DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A lake in a new folder of the bucket."""

    settings: Settings
    lake: Lake
    spark: "SparkSession"
    run: Callable[[list[str]], list[AssetRun]]

    def land(self, name: str, *, files: int = FILES) -> None:
        """So many landed files of ten events each."""
        for number in range(files):
            rows = [{"id": f"{name}-{number}-{row}", "amount": row} for row in range(10)]
            self.lake.store.put(
                f"landing/events/{name}-{number:03}.json", "\n".join(map(json.dumps, rows)).encode()
            )

    def write(self, *, batches: int) -> None:
        """So many batches of one file each in the table."""
        for number in range(batches):
            self.land(f"write-{number}", files=1)
            write_table(self.lake, self.spark, events)

    def materialize(self, key: str) -> None:
        """One run of an asset through Dagster, as the terminal makes it."""
        for run in self.run([key]):
            if run.state != "done":
                raise SystemExit(f"{key}: {run.state}: {run.error}")


def main(*arguments: str) -> list[Figure]:
    """Counts and prints the requests of each operation."""
    names, as_json = [name for name in arguments if name != "--json"], "--json" in arguments
    with tempfile.TemporaryDirectory() as home, served() as endpoint:
        boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)
        settings = own_settings(
            Path(home), LAKEHOUSE_ROOT=f"s3://{BUCKET}/warm", LAKEHOUSE_TABLES="benchmarks.requests"
        )
        with server.supervised(settings):
            found = [*_measured(endpoint, settings, names or [*OPERATIONS])]
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        _print(found)
    return [figure for each in found for figure in _figures(each)]


def _figures(found: Mapping[str, Any]) -> Iterator[Figure]:
    what, senders = found["operation"], ("ours", "spark")
    total = sum(
        count
        for sender in senders
        for kind, count in found[sender].items()
        if kind != "LIST of logs"
    )
    peers = {
        f"{sender} {kind}": found[sender][kind]
        for sender in senders
        for kind in KINDS
        if found[sender][kind]
    }
    yield Figure(name=f"requests of {what}", value=total, row="P14", peers=peers)
    if what.startswith(LANDED):
        asked = sum(found[sender][kind] for sender in senders for kind in ("GET", "HEAD"))
        yield Figure(name=f"GET and HEAD for a file of {what}", value=asked / FILES, row="P14")
        read = found["ours"]["GET"] / FILES
        yield Figure(name=f"GET of ours for a file of {what}", value=read, row="P14", at_most=2)


def _measured(endpoint: str, settings: Settings, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for place, name in enumerate(names):
        with _world(settings, f"lake-{place}") as world:
            step = OPERATIONS[name](world)
            ask(endpoint, "requests")
            (seconds, _), counts = timed(step), ask(endpoint, "requests")
        figures = {
            sender: {kind: counts.get(f"{sender} {kind}", 0) for kind in KINDS}
            for sender in ("ours", "spark")
        }
        yield {"operation": name, "seconds": round(seconds, 2), **figures}


@contextmanager
def _world(settings: Settings, folder: str) -> Iterator[World]:
    own = replace(settings, root=f"s3://{BUCKET}/{folder}")
    from lakehouse.definitions import define  # reads the environment when it is imported

    defs = define(own)
    with open_instance(own, print) as instance:
        spark = connect(own)
        run = partial(run_assets, instance, defs)
        yield World(settings=own, lake=open_lake(own), spark=spark, run=run)
        spark.stop()


def _print(found: Iterable[Mapping[str, Any]]) -> None:
    print(f"{'operation':<44}{'by':<6}" + "".join(f"{kind:>{len(kind) + 3}}" for kind in KINDS))
    for each in found:
        for sender in ("ours", "spark"):
            numbers = "".join(f"{each[sender][kind]:{len(kind) + 3},}" for kind in KINDS)
            print(
                f"{each['operation'] if sender == 'ours' else '':<44}{sender:<6}{numbers}",
                flush=True,
            )


type_of_step = Callable[[], object]


def _plan(world: World) -> type_of_step:
    world.write(batches=10)
    lake, tables = open_lake(world.settings), declared_tables(world.settings)
    return lambda: plan_operations(lake, tables, [*tables.values()])


def _compaction(world: World, *, by_engine: bool) -> type_of_step:
    world.write(batches=10)
    return lambda: (
        compact(world.lake, world.spark, events)
        if by_engine
        else world.materialize(f"compaction/{events.key}")
    )


def _batch(world: World, *, by_engine: bool) -> type_of_step:
    world.write(batches=3)
    world.land("counted")
    return lambda: (
        write_table(world.lake, world.spark, events) if by_engine else world.materialize(events.key)
    )


# A new operation is a function above and a line here.
OPERATIONS: Mapping[str, Callable[[World], type_of_step]] = {
    "lakehouse plan": _plan,
    "compaction of 10 files, engine": partial(_compaction, by_engine=True),
    "compaction of 10 files, asset": partial(_compaction, by_engine=False),
    f"{LANDED}, engine": partial(_batch, by_engine=True),
    f"{LANDED}, asset": partial(_batch, by_engine=False),
}


if __name__ == "__main__":
    main(*sys.argv[1:])
