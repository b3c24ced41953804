"""Compares Delta's VACUUM FULL and USING INVENTORY, deltalake's and ours on S3: seconds and requests.

`python -m benchmarks.vacuum [files …]`. Each way gets its own copy of a table with 1,000 folders,
of whose files a fifth is deleted: most were removed by the log, some are in no log. The server
(`s3_server.py`) answers at once, and for one size again as late as a real bucket. A way that would
take over ten minutes or fails is left out.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, inf
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from benchmarks.figures import Figure, alone, growth
from benchmarks.own_lake import landed_table
from benchmarks.s3_server import KEY, PREFIX, ask, names_of, served
from lakehouse.base.clock import now_ms
from lakehouse.base.settings import Settings
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.spark import statements
from lakehouse.spark.server import server
from lakehouse.spark.session import connect
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import newest_inventory, scan
from lakehouse.vacuum.run import vacuum
from lakehouse_tests.conftest import own_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES, FOLDERS = (2_000, 10_000, 30_000, 100_000), 1_000
LEAST_FASTER, MOST_SECONDS = 20, 600
# From 10,000 files on, of which a fifth is deleted, a vacuum is no slower than deltalake's.
LEAST_DELETED = 2_000
# A small request to S3 takes 100 to 200 ms by its documentation; these are few.
# Source: Amazon S3 user guide, "Best practices design patterns: optimizing Amazon S3 performance"
LATENCY_MS, LATE_SIZE = 20, 10_000
KINDS = (
    "LIST",
    "LIST of data",
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "DeleteObjects of data",
    "DeleteObjects of others",
)
BIG = landed_table(KEY, "id BIGINT, day STRING")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds, requests and deleted files of one way."""

    way: str
    seconds: float
    requests: Mapping[str, int]
    deleted: int


def main(*sizes: int) -> list[Figure]:
    """Seconds and requests of each way at each size; goals hold for the largest size of FULL."""
    measured = dict[int, dict[str, Measured]]()
    late_size = min(LATE_SIZE, max(sizes or SIZES))
    with tempfile.TemporaryDirectory() as home, served() as endpoint:
        settings = replace(
            own_settings(Path(home), LAKEHOUSE_SPARK_MEMORY="2g"), root="s3://warm/lake"
        )
        with server.supervised(settings):
            _compare(
                endpoint, settings, 200, {*WAYS}
            )  # warms the JVM up, which else the first way would pay for
            seconds, before = dict.fromkeys(WAYS, 0.0), 1
            for files in sizes or SIZES:
                ways = {
                    way
                    for way in WAYS
                    if way == OURS or seconds[way] * files / before < MOST_SECONDS
                }
                found = _compare(endpoint, settings, files, ways)
                _tell(files, found)
                seconds, before = (
                    {way: found[way].seconds if way in found else inf for way in WAYS},
                    files,
                )
                measured[files] = found
            print(f"\neach answer {LATENCY_MS} ms later:", end="")
            late = _compare(
                endpoint, settings, late_size, {FULL, DELTALAKE, OURS}, latency_ms=LATENCY_MS
            )
            _tell(late_size, late)
    judged = max((files for files, found in measured.items() if FULL in found), default=0)
    figures = [
        figure
        for files, found in measured.items()
        for figure in _figures(f"{files:,} files", found, is_judged=files == judged)
    ]
    grown = [(files, found[OURS].seconds) for files, found in measured.items()]
    figures += _figures(
        f"{late_size:,} files, each answer {LATENCY_MS} ms later", late, is_judged=False
    )
    return [
        *figures,
        growth("seconds of a vacuum from the inventory, by files", grown, size_of="files"),
    ]


def _figures(what: str, found: Mapping[str, Measured], *, is_judged: bool) -> Iterator[Figure]:
    ours = found[OURS]
    beside = {way: found[way].seconds for way in (FULL, INVENTORY, DELTALAKE, SCAN) if way in found}
    yield Figure(
        name=f"lakehouse vacuum, {what}", value=ours.seconds, unit="s", row="P2", peers=beside
    )
    if FULL in found:
        faster = found[FULL].seconds / ours.seconds
        yield Figure(
            name=f"how many times as fast as FULL, {what}",
            value=faster,
            row="P2",
            at_least=LEAST_FASTER if is_judged else None,
        )
    if DELTALAKE in found and ours.deleted >= LEAST_DELETED:
        yield Figure(
            name=f"times the seconds of deltalake vacuum(full=True), {what}",
            value=ours.seconds / found[DELTALAKE].seconds,
            unit="times",
            row="P2",
            at_most=1.0,
        )
    for kind, most in (("LIST of data", 0), ("DeleteObjects of data", ceil(ours.deleted / 1_000))):
        peers = {
            way: found[way].requests.get(kind, 0)
            for way in (FULL, INVENTORY, DELTALAKE)
            if way in found
        }
        value = ours.requests.get(kind, 0)
        yield Figure(
            name=f"requests {kind}, {what}",
            value=value,
            row="P2",
            at_most=most,
            peers=peers,
            holds_at_any_size=True,
        )


def _tell(files: int, found: Mapping[str, Measured]) -> None:
    """Prints the table of one size."""
    print(
        f"\n{files:,} files in {min(FOLDERS, files // 2):,} folders".ljust(41)
        + " seconds"
        + "".join(f"{kind:>{len(kind) + 4}}" for kind in KINDS)
    )
    for each in found.values():
        numbers = "".join(f"{each.requests.get(kind, 0):{len(kind) + 4},}" for kind in KINDS)
        print(f"{each.way:<40}{each.seconds:8.1f}{numbers}", flush=True)


def _compare(
    endpoint: str, settings: Settings, files: int, ways: set[str], *, latency_ms: int = 0
) -> dict[str, Measured]:
    live, dead, orphans = names_of(files, min(FOLDERS, files // 2))
    found: dict[str, Measured] = {}
    for number, (way, run) in enumerate(WAYS.items()):
        if way not in ways:
            continue
        bucket = f"b{files}-{latency_ms}-{number}"
        ask(endpoint, f"seed?bucket={bucket}&files={files}&folders={min(FOLDERS, files // 2)}")
        lake = open_lake(replace(settings, root=f"s3://{bucket}/{PREFIX}"))
        ask(endpoint, f"latency?ms={latency_ms}")
        for name, step in run(lake, connect(settings)):
            ask(endpoint, "requests")
            began = time.perf_counter()
            try:
                step()
            except Exception as error:
                if way == OURS:
                    raise
                print(
                    f"{name}, {files:,} files: left out, since it failed: {error}"[:500], flush=True
                )
                break
            seconds = time.perf_counter() - began
            found[name] = Measured(
                way=name,
                seconds=seconds,
                requests=ask(endpoint, "requests"),
                deleted=len(dead) + len(orphans),
            )
        ask(endpoint, "latency?ms=0")
        if way not in found:
            continue
        left = {
            each.key.removeprefix(f"{PREFIX}/{KEY}/")
            for each in lake.store.walk(KEY)
            if "/_delta_log/" not in each.key
        }
        if left != {*live}:
            raise SystemExit(
                f"{way}: {len({*live} - left)} live files are gone, {len(left - {*live})} others are left"
            )
    return found


type_of_steps = Iterator[tuple[str, Callable[[], object]]]


def _full(lake: Lake, spark: "SparkSession") -> type_of_steps:
    yield (
        FULL,
        lambda: spark.sql(
            f"VACUUM {statements.path_table(lake.settings.table_uri(KEY))}"
        ).collect(),
    )


def _inventory(lake: Lake, spark: "SparkSession") -> type_of_steps:
    """USING INVENTORY as an expert would call it: nullable columns in order, decoded, no log."""
    scan(lake, now_ms=now_ms())
    [name] = newest_inventory(lake).files
    data = f"{lake.settings.spark_root}/{name}"
    view = f"""
        SELECT concat('s3a://{lake.store.bucket}/', key) AS path, size_bytes AS length, nullif(false, true) AS isDir,
               modified_ms AS modificationTime
        FROM parquet.{statements.quote(data)} WHERE key LIKE '{PREFIX}/{KEY}/day=%'"""  # noqa: S608  # names of ours
    table = statements.path_table(lake.settings.table_uri(KEY))
    yield INVENTORY, lambda: spark.sql(f"VACUUM {table} FULL USING INVENTORY ({view})").collect()


def _deltalake(lake: Lake, _: "SparkSession") -> type_of_steps:
    """Without Spark; it knows neither clones nor an inventory, and lists the whole table."""
    options = {
        f"AWS_{name}": os.environ[f"AWS_{name}"]
        for name in ("ENDPOINT_URL", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION")
    }
    uri = f"s3://{lake.store.bucket}/{PREFIX}/{KEY}"
    yield (
        DELTALAKE,
        lambda: DeltaTable(uri, storage_options={**options, "AWS_ALLOW_HTTP": "true"}).vacuum(
            dry_run=False, full=True
        ),
    )


def _ours(lake: Lake, spark: "SparkSession") -> type_of_steps:
    yield SCAN, lambda: scan(lake, now_ms=now_ms())
    yield OURS, lambda: vacuum(LakeFacts(lake, [BIG]), lambda: spark, BIG, mode="INVENTORY")


FULL, INVENTORY, DELTALAKE, OURS, SCAN = (
    "VACUUM (FULL)",
    "VACUUM USING INVENTORY",
    "deltalake vacuum(full=True)",
    "lakehouse vacuum --mode INVENTORY",
    "(its inventory: lakehouse inventory load)",
)
WAYS: Mapping[str, Callable[[Lake, "SparkSession"], type_of_steps]] = {
    FULL: _full,
    INVENTORY: _inventory,
    DELTALAKE: _deltalake,
    OURS: _ours,
}


if __name__ == "__main__":
    sys.exit(alone(main))
