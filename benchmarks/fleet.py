"""Measures the compaction sensor with up to 1,000 tables of a thousand files, from metadata only.

`python -m benchmarks.fleet [TABLES …]`; `TMPDIR=/dev/shm` makes it faster. It measures the choice
alone, whole ticks of the real sensor over a Dagster instance with the tables' events and a day of
runs, and the S3 requests of 100 idle tables with their price. A tick may take 30 seconds; Dagster
ends it after 60.
"""

import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterEventType

from benchmarks.figures import Figure, alone, growth, timed
from benchmarks.own_lake import landed_table
from lakehouse import Overwrite, Prices, Table
from lakehouse.assets.keys import table_key
from lakehouse.assets.metadata import state_metadata
from lakehouse.base.clock import now_ms
from lakehouse.base.operation import Pause
from lakehouse.base.settings import parse_settings
from lakehouse.compact.plan.decision import (
    Bounds,
    CompactionCandidate,
    TableState,
    decide_fleet,
    describe,
)
from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse.compact.sensor import TICK_SECONDS_ON_S3, compaction_sensor
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import pause_table, record_operation
from lakehouse.store import DiskStore
from lakehouse_tests.counting_store import CountingStore
from lakehouse_tests.support.dagster_events import begun, ended
from lakehouse_tests.support.example_assets import example_settings
from lakehouse_tests.support.example_histories import failed

FILES = 1_000_000
COUNTS, REST_COUNT = (250, 500, 1_000), 100
TABLES_PER_RUN = 5
LIMIT_SECONDS = 30.0


def main(*table_counts: int) -> list[Figure]:
    """Seconds of the choice and of a tick by the number of tables, and requests of idle tables."""
    choices, whole = list[tuple[float, float]](), list[tuple[float, float]]()
    for count in table_counts or COUNTS:
        chance, tables = random.Random(7), fleet_of(count)
        states = [state_of_one(chance, table, FILES // COUNTS[-1]) for table in tables]
        candidates = [
            CompactionCandidate(state=state, policy=table.compaction_policy)
            for state, table in zip(states, tables, strict=True)
        ]
        choice = partial(
            decide_fleet,
            candidates,
            bounds=Bounds(slots=4),
            now_ms=now_ms(),
        )
        seconds, decisions = timed(choice)
        choices.append((count, seconds))
        print(
            f"  choice over {count:,} tables: {seconds:.3f} s; first: {describe(decisions[:1])}",
            flush=True,
        )
        with (
            tempfile.TemporaryDirectory() as folder,
            dg.DagsterInstance.local_temp(folder) as instance,
        ):
            tell(instance, tables, states, chance)
            whole.append((count, max(ticks(instance, tables, Path(folder)))))
    with tempfile.TemporaryDirectory() as folder, dg.DagsterInstance.local_temp(folder) as instance:
        resting = [*at_rest(instance, min(REST_COUNT, *(table_counts or COUNTS)))]
    largest = f"{whole[-1][0]:,} tables"
    return [
        Figure(name=f"the choice alone, {largest}", value=choices[-1][1], unit="s"),
        Figure(
            name=f"the slowest of three sensor ticks, {largest}",
            value=whole[-1][1],
            unit="s",
            at_most=LIMIT_SECONDS,
        ),
        growth("sensor tick, by tables", whole, size_of="tables"),
        *resting,
    ]


def ticks(instance: dg.DagsterInstance, tables: list[Table], folder: Path) -> list[float]:
    """Seconds of three successive ticks, each with the cursor of the previous one."""
    lake = Lake(settings=example_settings(folder), store=DiskStore(folder / "lake"))
    sensor, cursor, took = compaction_sensor(tables, lake), None, list[float]()
    for number in range(1, 4):
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            seconds, result = timed(lambda: sensor(context))
        assert isinstance(result, dg.SensorResult)
        cursor, asked = result.cursor, [request.run_key for request in result.run_requests or []]
        took.append(seconds)
        print(
            f"  tick {number}: {seconds:.2f} s; asked for {asked}, cursor of {len(cursor or ''):,} characters",
            flush=True,
        )
    return took


def at_rest(instance: dg.DagsterInstance, table_count: int) -> Iterator[Figure]:
    """S3 requests of ticks over idle tables with five failed attempts each, one in ten paused."""
    store, tables, prices = CountingStore(), fleet_of(table_count), Prices()
    settings = parse_settings({"LAKEHOUSE_ROOT": "s3://bucket"}, base=Path("/"))
    lake = Lake(settings=settings, store=store)
    for place, table in enumerate(tables):
        for number in range(5):
            record_operation(lake, failed(now_ms() - number, table=table.key))
        if place % 10 == 0:
            pause_table(lake, Pause(table=table.key, since_ms=0))
    sensor, taken = compaction_sensor(tables, lake), list[dict[str, int]]()
    for _ in range(2):
        store.requests.clear()
        with dg.build_sensor_context(instance=instance) as context:
            sensor(context)
        taken.append(store.taken())
    day = {kind: count * 86_400 // TICK_SECONDS_ON_S3 for kind, count in taken[1].items()}
    usd = _usd(prices, day)
    print(f"  {taken[1]} a tick, {day} a day, {usd:.3f} USD a day", flush=True)
    at = f"{table_count} tables at rest on S3"
    yield Figure(
        name=f"requests of a sensor tick, {at}",
        value=sum(taken[1].values()),
        row="P14",
        peers={"the first tick": sum(taken[0].values())},
    )
    yield Figure(name=f"requests a day, {at}", value=sum(day.values()), row="P14")
    yield Figure(name=f"price of a day, {at}", value=usd, unit="USD", row="P14")


def _usd(prices: Prices, requests: Mapping[str, int]) -> float:
    return (
        requests.get("LIST", 0) / 1_000 * prices.usd_per_1000_puts
        + (requests.get("GET", 0) + requests.get("HEAD", 0)) / 1_000 * prices.usd_per_1000_gets
    )


def fleet_of(count: int) -> list[Table]:
    """This many tables: half of them landed, half derived from those."""
    landed = [
        landed_table(f"bronze/t{number:05}", "id STRING") for number in range(count - count // 2)
    ]
    made = {"transform": lambda **rows: rows, "write": Overwrite()}
    return [
        *landed,
        *(
            Table(key=f"silver/t{number:05}", inputs=(source,), **made)
            for number, source in enumerate(landed)
        ),
    ][:count]


def state_of_one(chance: random.Random, table: Table, files: int) -> TableState:
    """The state of a table with about `files` files, some of them mergeable."""
    count = max(2, round(files * chance.uniform(0.2, 1.8)))
    mergeable = chance.choice([0, count // 50, count // 5, count // 2])
    return TableState(
        table=table.key,
        version=chance.randrange(5000),
        mergeable_file_count=mergeable,
        file_count=count,
        files_after=count - mergeable + mergeable // 100,
        oldest_small_ms=now_ms() - chance.randrange(90_000_000) if mergeable else None,
        deleted_rows_share=0.0,
        estimate_usd=mergeable * 0.02 / 3600 * 0.22,
        health_score=chance.uniform(20, 100),
        usd_per_opening=usd_per_opening(table.prices, on_s3=True),
        reads_per_day=chance.choice([0.0, 1.0, 24.0, 500.0]),
    )


def tell(
    instance: dg.DagsterInstance,
    tables: list[Table],
    states: list[TableState],
    chance: random.Random,
) -> None:
    """Reports a materialization and an observation of each table, and a day of runs."""
    names = (
        *(
            "version",
            "mergeable_file_count",
            "file_count",
            "files_after",
            "oldest_small_ms",
        ),
        *("deleted_rows_share", "estimate_usd", "health_score"),
    )
    for table, state in zip(tables, states, strict=True):
        numbers: dict[str, Any] = {
            f"lakehouse/{name}": value
            for name in names
            if (value := getattr(state, name)) is not None
        }
        numbers["lakehouse/state"] = state_metadata(state)
        instance.report_runless_asset_event(
            dg.AssetMaterialization(table_key(table), metadata=numbers)
        )
        instance.report_runless_asset_event(dg.AssetObservation(table_key(table), metadata=numbers))
    for _ in range(len(tables) // TABLES_PER_RUN):
        ended(
            instance,
            begun(instance, table_key(chance.choice(tables))),
            DagsterEventType.RUN_SUCCESS,
        )


if __name__ == "__main__":
    sys.exit(alone(main))
