"""A fleet of 1,000 tables with a million files in all: how long the sensor takes to weigh it, metadata only.

`python -m benchmarks.fleet [TABLES]`; with `TMPDIR=/dev/shm` the events are written sooner. Two figures: the choice alone (core, no
Dagster), and whole ticks of the real sensor over a Dagster instance that holds the tables' events and a day of runs. The bar is one
tick's time, 30 seconds; Dagster ends a tick after 60. Then the requests to S3 of 100 tables at rest, and their price.
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

from lakehouse import Append, Landing, Overwrite, Prices, Table
from lakehouse.core.costs.measured_benefit import Probe
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.scheduling.circuit_breaker import CompactionTry, Pause
from lakehouse.core.scheduling.ranking import Bounds, RunState, choose_compactions, describe
from lakehouse.core.scheduling.triggers import TableState
from lakehouse.core.settings import parse_settings
from lakehouse.defs.compaction import SWEEP_MS, compaction_sensor
from lakehouse.defs.keys import table_key
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.read_probe import record_probe
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse_tests.counting_store import CountingStore
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
        at_rest(instance)
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


def at_rest(instance: dg.DagsterInstance, table_count: int = 100) -> None:
    """Prints what ticks over tables ask of S3 that nobody writes, each with ten probes and five failed tries, one in ten paused."""
    store, tables, prices = CountingStore(), fleet_of(table_count), Prices()
    settings = parse_settings({"LAKEHOUSE_ROOT": "s3://bucket"}, base=Path("/"))
    lake, seconds = Lake(settings=settings, store=store), {"spent_seconds": 1.0, "budget_seconds": 1.0}
    for place, table in enumerate(tables):
        for number in range(10):
            replay_step = {"version_before": number, "version_after": number + 1, "measured_ms": number}
            record_probe(lake, Probe(table=table.key, before=(1.0, 1.0, 1.0), after=(0.5, 0.5, 0.5), **seconds, **replay_step))
        for number in range(5):
            Journal(store).record_try(table.key, CompactionTry(ended_ms=number, result="failed"))
        if place % 10 == 0:
            Journal(store).pause(Pause(table=table.key, since_ms=0))
    sensor, taken = compaction_sensor(tables, lake), list[dict[str, int]]()
    for _ in range(2):
        store.requests.clear()
        with dg.build_sensor_context(instance=instance) as context:
            sensor(context)
        taken.append(store.taken())
    sweeps = 86_400_000 // SWEEP_MS
    per_day = {kind: count * 86_400 // settings.compaction_tick_seconds for kind, count in taken[1].items()}
    swept = {"LIST": 3 * sweeps, "GET": sweeps * table_count // 10}
    for name, tick, day in (
        ("every tick reads all, each 10 s", taken[0], {kind: count * 8_640 for kind, count in taken[0].items()}),
        ("now", taken[1], {kind: per_day.get(kind, 0) + more for kind, more in swept.items()}),
    ):
        usd = day["LIST"] / 1_000 * prices.usd_per_1000_puts + day["GET"] / 1_000 * prices.usd_per_1000_gets
        print(f"{table_count} tables at rest, {name}: {tick} a tick, {day} a day with sweeps, {usd:.3f} USD a day")


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
