"""A fleet of 1,000 tables with a million files in all: how long the sensor takes to weigh it, metadata only.

`python -m benchmarks.fleet [TABLES]`; with `TMPDIR=/dev/shm` the events are written sooner. Two figures: the choice alone (core, no
Dagster), and whole ticks of the real sensor over a Dagster instance that holds the tables' events and a day of runs. The bar is one
tick's time, 30 seconds; Dagster ends a tick after 60.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
from dagster import DagsterEventType

from lakehouse import Append, Landing, Overwrite, Table
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.scheduling.ranking import Bounds, RunState, choose_compactions, describe
from lakehouse.core.scheduling.triggers import TableState
from lakehouse.defs.compaction import compaction_sensor
from lakehouse.defs.keys import table_key
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse_tests.defs.example import begun, ended, example_settings

FILES = 1_000_000
RUNS = 200
LIMIT_SECONDS = 30.0


def main(table_count: int = 1000) -> int:
    """Prints the seconds of each step; 1 if a tick took longer than its time."""
    chance, tables = random.Random(7), fleet_of(table_count)
    states = [state_of_one(chance, table, FILES // len(tables)) for table in tables]
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    files = sum(state.file_count or 0 for state in states)
    bounds, now = Bounds(slots=4), now_ms()
    seconds, decisions = timed(lambda: choose_compactions(states, policies, RunState(), bounds=bounds, now_ms=now))
    print(f"choice over {len(tables):,} tables, {files:,} files: {seconds:.3f} s; {sum(each.request for each in decisions)} requested")
    print(f"its text: {len(describe(decisions)):,} characters; first: {describe(decisions[:1])}")
    with tempfile.TemporaryDirectory() as folder, dg.DagsterInstance.local_temp(folder) as instance:
        seconds, _ = timed(lambda: tell(instance, tables, states, chance))
        print(f"events and {RUNS} runs written to an instance of SQLite: {seconds:.1f} s")
        return 0 if max(ticks(instance, tables, Path(folder))) <= LIMIT_SECONDS else 1


def ticks(instance: dg.DagsterInstance, tables: list[Table], folder: Path) -> list[float]:
    """The seconds of three ticks in a row, each with the cursor of the one before."""
    lake = Lake(settings=example_settings(folder), store=DiskStore(folder / "lake"))
    sensor, cursor, took = compaction_sensor(tables, lake), None, list[float]()
    for number in range(1, 4):
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            before = time.process_time()
            seconds, result = timed(lambda: sensor(context))
            busy = time.process_time() - before
        assert isinstance(result, dg.SensorResult)
        cursor, asked = result.cursor, [request.run_key for request in result.run_requests or []]
        took.append(seconds)
        print(f"tick {number}: {seconds:.2f} s, {busy:.2f} s of them busy; asked for {asked}, cursor of {len(cursor or ''):,} characters")
    return took


def fleet_of(count: int) -> list[Table]:
    """So many tables, half of them landed, half made of those."""
    landed = [
        Table(
            key=f"bronze/t{number:05}", source=Landing(prefix=f"landing/t{number:05}/", format="json", schema="id STRING"), write=Append()
        )
        for number in range(count - count // 2)
    ]
    return [
        *landed,
        *(
            Table(key=f"silver/t{number:05}", inputs=(source,), transform=_as_it_is, write=Overwrite())
            for number, source in enumerate(landed)
        ),
    ][:count]


def state_of_one(chance: random.Random, table: Table, files: int) -> TableState:
    """A table of about so many files, of which some would be merged into few."""
    count = max(2, round(files * chance.uniform(0.2, 1.8)))
    mergeable = chance.choice([0, count // 50, count // 5, count // 2])
    return TableState(
        table=table.key,
        version=chance.randrange(5000),
        mergeable_file_count=mergeable,
        mergeable_bytes=mergeable * 400_000,
        file_count=count,
        files_after=count - mergeable + mergeable // 100,
        size_bytes=count * 2_000_000,
        oldest_small_ms=now_ms() - chance.randrange(90_000_000) if mergeable else None,
        deleted_rows_share=0.0,
        estimate_seconds=mergeable * 0.02,
        estimate_usd=mergeable * 0.02 / 3600 * 0.22,
        health_score=chance.uniform(20, 100),
        reads_per_day=chance.choice([0.0, 1.0, 24.0, 500.0]),
    )


def tell(instance: dg.DagsterInstance, tables: list[Table], states: list[TableState], chance: random.Random) -> None:
    """A materialization and an observation of each table, and a day of runs that wrote tables."""
    names = ("version", "mergeable_file_count", "mergeable_bytes", "file_count", "files_after", "size_bytes", "oldest_small_ms")
    for table, state in zip(tables, states, strict=True):
        more = (*names, "deleted_rows_share", "estimate_seconds", "estimate_usd", "health_score")
        numbers: dict[str, Any] = {f"lakehouse/{name}": value for name in more if (value := getattr(state, name)) is not None}
        instance.report_runless_asset_event(dg.AssetMaterialization(table_key(table), metadata=numbers))
        instance.report_runless_asset_event(dg.AssetObservation(table_key(table), metadata=numbers))
    for _ in range(RUNS):
        ended(instance, begun(instance, table_key(chance.choice(tables))), DagsterEventType.RUN_SUCCESS)


def _as_it_is(**rows: Any) -> Any:
    return rows


def timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a step takes, and what it gives."""
    start = time.perf_counter()
    given = step()
    return time.perf_counter() - start, given


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
