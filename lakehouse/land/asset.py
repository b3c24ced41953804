"""Landing areas as external assets, and the sensor that watches all of them."""

import threading
import time
from collections.abc import Sequence

import dagster as dg

from lakehouse.assets.dagster_records import (
    NewestFacts,
    ended_runs,
    is_canceled,
    newest_facts,
    runs_in_flight,
)
from lakehouse.assets.keys import landing_key, table_key
from lakehouse.assets.runs import repeated_by_person
from lakehouse.base.errors import LakehouseError
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Reason
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.land.ledger import landed_files, last_loaded, planned_batches, unfinished_batch
from lakehouse.land.plan.batches import Batch, Ledger
from lakehouse.land.plan.choose_files import BatchPlan, choose_batch, repeat_batch
from lakehouse.store import FairOrder, TimeBudget

# Seconds between two ticks. Listing a bucket costs money, and listing a folder is free.
_SECONDS_ON_DISK = 10
_SECONDS_ON_S3 = 30
_FIRST_PAUSE_SECONDS = 30
_LONGEST_PAUSE_SECONDS = 3600
# At most this many of a batch's newest tries are read. The pause is the longest after 8 failures.
_TRIES_LOOKED_AT = 100


def landing_assets(tables: Sequence[Table], lake: Lake) -> list[dg.AssetSpec]:
    """One external asset per landing prefix, even if several tables read it."""
    landings = {
        landing_key(table.source): table.source for table in tables if table.source is not None
    }
    return [
        dg.AssetSpec(
            key=key,
            group_name="landing",
            kinds={"source", "s3" if lake.settings.on_s3 else "file"},
            description=f"Files that arrive from outside: {landing.format} under {landing.prefix}",
            metadata={"dagster/uri": f"{lake.settings.root}/{landing.prefix}"},
        )
        for key, landing in landings.items()
    ]


def landing_sensor(
    tables: Sequence[Table], lake: Lake, *, budget: TimeBudget | None = None
) -> dg.SensorDefinition:
    """Requests one run for all tables with files to load, and gives a reason for every table.

    The sensor and the run choose the batch with the same function, from the listing and the table's
    ledger (the record of its planned batches). The sensor reads a table's log only if no Dagster
    event records the last loaded batch. A failed batch is requested again, after a pause that grows
    with each failure. A table that requires manual action, or whose storage is slow (`TimeBudget`),
    is reported and does not delay other tables.
    """
    landed = [table for table in tables if table.source is not None]
    budget = budget or TimeBudget()
    watch = _Watch(lake.within(budget), landed, budget)

    @dg.sensor(
        name="landing_sensor",
        target=dg.AssetSelection.assets(*(table_key(table) for table in landed)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=_SECONDS_ON_S3 if lake.settings.on_s3 else _SECONDS_ON_DISK,
        description="Lists the landing prefixes, and starts a load for each table with new files.",
    )
    def tick(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        table_states = watch.table_states(context.instance, now=time.time())
        due = [state for state in table_states if state.batch is not None]
        text = ";\n".join(f"{state.table.key}: {state.sentence}" for state in table_states)
        if not due:
            return dg.SensorResult(skip_reason=text)
        context.log.info(text)
        # With the last try of each batch, because Dagster starts at most one run per run key.
        keys = [f"{state.table.key}:{state.batch}:{state.last_try}" for state in due]
        request = dg.RunRequest(
            run_key=" ".join(keys),
            asset_selection=[table_key(state.table) for state in due],
            tags={_batch_tag(state.table): str(state.batch) for state in due},
        )
        return dg.SensorResult(run_requests=[request])

    return tick


@frozen
class _TableState:
    """The state of a table in one tick.

    `batch` is the number of the batch for which a run is requested, or `None`. `last_try` is the
    newest ended run that was requested for this batch.
    """

    table: Table
    sentence: str
    batch: int | None = None
    last_try: str = "first"


class _Watch:
    """Keeps each ledger and unfinished batch in memory until a run may have changed them.

    An outdated ledger does no harm: at worst, a run is requested that finds nothing new to load.
    """

    def __init__(self, lake: Lake, tables: Sequence[Table], budget: TimeBudget) -> None:
        self._lake = lake
        self._tables = tables
        self._budget = budget
        self._turns = FairOrder(table.key for table in tables)
        # By table: the id of the newest event at the time of reading, the ledger, and the
        # unfinished batch, if there is one.
        self._ledgers: dict[str, tuple[int, Ledger, Batch | None]] = {}
        # A person may evaluate a tick in the UI while the daemon evaluates another tick.
        self._one_tick = threading.Lock()

    def table_states(self, instance: dg.DagsterInstance, *, now: float) -> list[_TableState]:
        """The state of each table."""
        with self._one_tick:
            self._budget.begin()
            in_flight = runs_in_flight(instance, self._tables)
            running = {
                table.key: [run.name for run in in_flight if run.table == table.key]
                for table in self._tables
            }
            idle_tables = [table for table in self._tables if not running[table.key]]
            facts = newest_facts(instance, idle_tables)
            by_key = {table.key: table for table in self._tables}
            states = {
                key: self._state_of(instance, by_key[key], facts.get(key), running[key], now=now)
                for key in self._turns.within(self._budget)
            }
            seconds = round(self._budget.spent_seconds)
            deferred = f"left for the next tick, because storage took {seconds} s in this tick"
            return [
                states.get(table.key) or _TableState(table=table, sentence=deferred)
                for table in self._tables
            ]

    def _state_of(
        self,
        instance: dg.DagsterInstance,
        table: Table,
        facts: NewestFacts | None,
        running: Sequence[str],
        *,
        now: float,
    ) -> _TableState:
        if running:
            self._ledgers.pop(table.key, None)
            in_flight = Reason.RUN_IN_FLIGHT.explain(runs="; ".join(running))
            return _TableState(table=table, sentence=in_flight.sentence)
        try:
            plan = self._plan(table, facts, now=now)
        except LakehouseError as error:
            return _TableState(table=table, sentence=str(error))
        if plan.batch is None:
            return _TableState(table=table, sentence=plan.sentence)
        number = plan.batch.number
        tries = ended_runs(instance, {_batch_tag(table): str(number)}, limit=_TRIES_LOOKED_AT)
        failed = [
            record
            for record in tries
            if not repeated_by_person(record.dagster_run.tags) and not is_canceled(instance, record)
        ]
        seconds_left = _seconds_left(failed, now=now)
        if seconds_left > 0:
            pause = Reason.TRIED_BEFORE.explain(
                batch=number, tries=len(failed), seconds=round(seconds_left)
            )
            return _TableState(table=table, sentence=pause.sentence)
        self._ledgers.pop(table.key, None)
        last_try = tries[0].dagster_run.run_id if tries else "first"
        return _TableState(table=table, sentence=plan.sentence, batch=number, last_try=last_try)

    def _plan(self, table: Table, facts: NewestFacts | None, *, now: float) -> BatchPlan:
        event_id = facts.storage_id if facts else 0
        cached = self._ledgers.get(table.key)
        if cached is None or cached[0] != event_id:
            batches = planned_batches(self._lake, table)
            ledger = batches.ledger()
            last_batch = facts.values.get("lakehouse/landed_batch") if facts else None
            if not isinstance(last_batch, int):
                # No event records the last loaded batch, so the table's log is read.
                last_batch = last_loaded(table, self._lake.facts(table.key), ledger)
            unfinished = unfinished_batch(self._lake, table, last_batch, ledger, batches)
            cached = (event_id, ledger, unfinished)
            self._ledgers[table.key] = cached
        _, ledger, unfinished = cached
        if unfinished is not None:
            return repeat_batch(unfinished)
        listing = landed_files(self._lake.store, table.landing)
        now_ms = round(now * 1_000)
        return choose_batch(listing, ledger, table.landing, table.write, now_ms=now_ms)


def _seconds_left(tries: Sequence[dg.RunRecord], *, now: float) -> float:
    """The rest of the pause after these failed tries, newest first; 0 or less if it is over."""
    if not tries:
        return 0.0
    pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (len(tries) - 1))
    ended = min(tries[0].end_time or now, now)  # the clock of the run's machine may be ahead
    return ended + pause - now


def _batch_tag(table: Table) -> str:
    return f"lakehouse/batch.{table.layer}.{table.name}"
