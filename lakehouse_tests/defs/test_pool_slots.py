"""A slot of a pool that an ended run left behind: other tables are served, the tick names the run, and the slot is freed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
from dagster import DagsterEventType

from lakehouse.core.declaration.table import Table
from lakehouse.defs.compaction_sensor import compaction_sensor
from lakehouse.defs.keys import compaction_key, pool_of, table_key
from lakehouse.defs.pool_slots import FREED_AFTER_MS, free_ended_slots
from lakehouse.defs.run_ownership import machine_tag, process_tag
from lakehouse.engine.clock import now_ms
from lakehouse.runtime.processes import identify
from lakehouse_tests.defs.dagster_events import begun, ended, materialized, tick_of
from lakehouse_tests.defs.example import TABLES, example_lake, orders, totals

POOL = pool_of(orders)
MINUTE = FREED_AFTER_MS / 1000


@pytest.fixture(scope="module")
def databases() -> Iterator[dg.DagsterInstance]:
    """An instance with pools in SQLite, which has none of the settings by which Dagster itself frees slots."""
    pools = {"concurrency": {"pools": {"default_limit": 1, "granularity": "op"}}}
    with dg.instance_for_test(overrides=pools) as instance:
        yield instance


@pytest.fixture
def records(databases: dg.DagsterInstance) -> dg.DagsterInstance:
    """The same with nothing in it."""
    databases.wipe()
    return databases


def claims(records: dg.DagsterInstance, run_id: str, *, pool: str = POOL, step: str = "x") -> bool:
    """Whether a run's step has a slot of a pool after asking for it."""
    records.event_log_storage.initialize_concurrency_limit_to_default(pool)
    return records.event_log_storage.claim_concurrency_slot(pool, run_id, step).is_claimed


def holds(records: dg.DagsterInstance, run_id: str, *, pool: str = POOL) -> bool:
    return run_id in records.event_log_storage.get_concurrency_info(pool).active_run_ids


def writer(records: dg.DagsterInstance, *, seconds_ago: float | None) -> dg.DagsterRun:
    """A run of the orders that took their slot, and was canceled so long ago without freeing it (`None`: it goes on)."""
    run = begun(records, table_key(orders))
    assert claims(records, run.run_id)
    if seconds_ago is not None:
        ended(records, run, DagsterEventType.RUN_CANCELED, seconds_ago=seconds_ago)
    return run


def tick(records: dg.DagsterInstance, home: Path) -> tuple[list[dg.AssetKey], str]:
    """The compactions that a tick asks for, and the sentences of its ranking."""
    lake = example_lake(home)
    result = tick_of(compaction_sensor(TABLES, lake), records)
    asked = [key for each in result.run_requests or [] for key in each.asset_selection or []]
    told = [event.metadata["lakehouse/ranking"].value for event in result.asset_events]
    return asked, "".join(map(str, told)).replace("\\", "")


@pytest.mark.parametrize("seconds_ago", [0, None], ids=["it was canceled", "it works"])
@pytest.mark.parametrize("begins", [True, False], ids=["its step waits", "it is queued"])
def test_a_compaction_that_waits_for_its_pool_takes_no_slot_and_names_the_run_that_holds_it(
    tmp_path: Path,
    records: dg.DagsterInstance,
    begins: bool,
    seconds_ago: float | None,
) -> None:
    holder = writer(records, seconds_ago=seconds_ago)
    waiting = begun(records, compaction_key(orders))
    if begins:
        assert not claims(records, waiting.run_id)
    materialized(records, totals, version=7, mergeable_file_count=4)
    asked, text = tick(records, tmp_path)
    assert asked == [compaction_key(totals)]
    assert f"{waiting.run_id[:8]} waits for pool {POOL}, held by run {holder.run_id[:8]}" in text
    assert ("which ended as CANCELED" in text) is (seconds_ago is not None)
    assert holds(records, holder.run_id)


def test_a_compaction_that_works_keeps_its_slot_and_is_named(
    tmp_path: Path, records: dg.DagsterInstance
) -> None:
    at_work = begun(records, compaction_key(orders))
    assert claims(records, at_work.run_id)
    materialized(records, totals, version=7, mergeable_file_count=4)
    asked, text = tick(records, tmp_path)
    assert asked == []
    assert (
        f"at most 1 compaction may run at once (now {at_work.run_id[:8]} of bronze/orders)" in text
    )


@pytest.mark.parametrize(
    "how",
    [
        DagsterEventType.RUN_CANCELED,
        DagsterEventType.RUN_FAILURE,
        DagsterEventType.RUN_SUCCESS,
        None,
    ],
    ids=["canceled", "failed", "succeeded", "deleted"],
)
def test_the_slot_of_an_ended_run_is_freed_a_minute_later_and_the_next_has_it(
    tmp_path: Path, records: dg.DagsterInstance, how: DagsterEventType | None
) -> None:
    holder = writer(records, seconds_ago=None)
    waiting = begun(records, compaction_key(orders))
    assert not claims(records, waiting.run_id)
    if how is None:
        records.delete_run(holder.run_id)
    else:
        ended(records, holder, how, seconds_ago=MINUTE + 1)
    tick(records, tmp_path)
    assert not holds(records, holder.run_id)
    assert claims(records, waiting.run_id)


def test_a_slot_that_was_assigned_to_a_run_that_ended_is_freed(
    tmp_path: Path, records: dg.DagsterInstance
) -> None:
    first, second = begun(records, table_key(orders)), begun(records, compaction_key(orders))
    assert claims(records, first.run_id)
    assert not claims(records, second.run_id)
    records.event_log_storage.free_concurrency_slots_for_run(first.run_id)
    ended(records, second, DagsterEventType.RUN_CANCELED, seconds_ago=MINUTE + 1)
    tick(records, tmp_path)
    third = begun(records, compaction_key(orders))
    assert claims(records, third.run_id)


def of_process(
    records: dg.DagsterInstance, tags: dict[str, str], *, seconds_ago: float
) -> dg.DagsterRun:
    run = writer(records, seconds_ago=None)
    records.add_run_tags(run.run_id, {name: text.format(run.run_id) for name, text in tags.items()})
    return ended(records, run, DagsterEventType.RUN_CANCELED, seconds_ago=seconds_ago)


ALIVE = process_tag("{}")
with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as _process:
    _known = identify(_process.pid)
assert _known is not None
GONE = {**ALIVE, machine_tag("process"): f"{{}} {_known.pid} {_known.born}"}


@pytest.mark.parametrize(
    ("table", "tags", "seconds_ago", "freed"),
    [
        (orders, GONE, 0, True),
        (orders, {}, 0, False),
        (orders, {}, MINUTE + 1, True),
        (orders, ALIVE, 60 * MINUTE, False),
    ],
)
def test_a_slot_is_kept_while_its_process_may_still_write(
    records: dg.DagsterInstance,
    table: Table,
    tags: dict[str, str],
    seconds_ago: float,
    freed: bool,
) -> None:
    run = of_process(records, tags, seconds_ago=seconds_ago)
    sentences = free_ended_slots(records, [table], now_ms=now_ms())
    assert holds(records, run.run_id) is not freed
    found = f"run {run.run_id[:8]} has ended and still holds a slot of pool {POOL}"
    if freed:
        assert sentences == [f"{found}: freed"]
    elif seconds_ago:
        [sentence] = sentences
        assert sentence.startswith(f"{found}; its process may still write")
    else:
        assert sentences == []


def test_the_slots_of_other_pools_are_left_alone(records: dg.DagsterInstance) -> None:
    run_id = str(uuid4())
    assert claims(records, run_id, pool="another")
    assert free_ended_slots(records, TABLES, now_ms=now_ms()) == []
    assert holds(records, run_id, pool="another")
