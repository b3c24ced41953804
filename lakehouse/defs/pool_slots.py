"""Shows which runs hold or await slots of the tables' pools, and frees slots of ended runs.

Dagster frees a slot when its step ends. If the process dies first, or a person marks the run as
canceled, the slot is never freed. Every run that shares the pool then waits forever
(dagster-io/dagster#28456). Dagster's daemon frees such slots only if it is configured to, and it
never frees the slot of a run whose record was deleted.

**Safety properties** (tests in `test_pool_slots.py`)
- A slot is freed only if the record of its run was deleted, or if its run has ended. After the end
  of a run, either its process must be gone, or a minute must have passed.
- A slot is never freed while the process of its run is known to be alive.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import RunRecord, RunsFilter
from dagster._core.storage.dagster_run import FINISHED_STATUSES  # not public
from dagster._utils.concurrency import ConcurrencyKeyInfo  # not public

from lakehouse.core.declaration.table import Table
from lakehouse.defs.keys import pool_of
from lakehouse.defs.run_ownership import recorded_process, was_here

# A slot is freed this long after the end of its run, because by then, a process that was asked to
# stop has ended. `free_slots_after_run_end_seconds` in dagster.yaml is the same time.
FREED_AFTER_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSlots:
    """The slots of some pools at one time, and the records of their holders, by run id."""

    pools: Mapping[str, ConcurrencyKeyInfo]
    records: Mapping[str, RunRecord]

    def wait_of(self, run_id: str, pool: str) -> str:
        """Why a run waits for a pool; empty if it has or can get a slot, or no limit is known."""
        info = self.pools.get(pool)
        if info is None or info.limit is None:
            return ""
        holders = _holders(info)
        if run_id in holders or len(holders) < info.limit:
            return ""
        if not holders:
            return f"waits for pool {pool}, whose limit is 0"
        return f"waits for pool {pool}, held by {', '.join(map(self._holder_text, holders))}"

    def _holder_text(self, run_id: str) -> str:
        record = self.records.get(run_id)
        if record is None:
            return f"run {run_id[:8]}, which was deleted"
        status = record.dagster_run.status
        ended = f", which ended as {status.value}" if status in FINISHED_STATUSES else ""
        return f"run {run_id[:8]}{ended}"


def read_pool_slots(instance: dg.DagsterInstance, pools: Iterable[str]) -> PoolSlots:
    """The present slots of these pools; empty if the instance has no pools."""
    storage = instance.event_log_storage
    names = sorted(set(pools))
    if not names or not storage.supports_global_concurrency_limits:
        return PoolSlots(pools={}, records={})
    infos = storage.get_concurrency_infos(names)
    holders = sorted({run_id for info in infos.values() for run_id in _holders(info)})
    records = instance.get_run_records(RunsFilter(run_ids=holders)) if holders else ()
    return PoolSlots(pools=infos, records={record.dagster_run.run_id: record for record in records})


def free_ended_slots(
    instance: dg.DagsterInstance, tables: Sequence[Table], *, now_ms: int
) -> list[str]:
    """Frees slots that ended runs still hold, if that is safe; a sentence per run and pool."""
    slots = read_pool_slots(instance, map(pool_of, tables))
    sentences: list[str] = []
    for pool, info in slots.pools.items():
        for run_id in _holders(info):
            record = slots.records.get(run_id)
            if not _has_ended(record, now_ms=now_ms):
                continue
            state = "has ended"
            button = '"Free concurrency slots" on the page of the run'
            if record is None:
                state = "was deleted"
                button = '"Free concurrency slot for step" on the page of the pool'
            finding = f"run {run_id[:8]} {state} and still holds a slot of pool {pool}"
            if not _may_be_freed(record):
                sentences.append(
                    f"{finding}; its process may still write. Stop that process, then use {button}"
                )
                continue
            for step_key in _steps(info, run_id):
                instance.event_log_storage.free_concurrency_slot_for_step(run_id, step_key)
            sentences.append(f"{finding}: freed")
    return sentences


def _holders(info: ConcurrencyKeyInfo) -> list[str]:
    """The runs that hold a slot, or were assigned one that they are about to claim."""
    return sorted(info.active_run_ids | info.assigned_run_ids)


def _steps(info: ConcurrencyKeyInfo, run_id: str) -> set[str]:
    entries = [*info.claimed_slots, *info.pending_steps]
    return {entry.step_key for entry in entries if entry.run_id == run_id}


def _has_ended(record: RunRecord | None, *, now_ms: int) -> bool:
    """Whether the run has ended, and its process is gone or has had time to end."""
    if record is None:
        return True
    if record.dagster_run.status not in FINISHED_STATUSES:
        return False
    process = recorded_process(record.dagster_run)
    if process is not None and was_here(record.dagster_run) and not process.is_alive:
        return True
    ended_ms = (record.end_time or record.update_timestamp.timestamp()) * 1000
    return now_ms - ended_ms >= FREED_AFTER_MS


def _may_be_freed(record: RunRecord | None) -> bool:
    """Whether the run's process is gone, or unknown."""
    process = None if record is None else recorded_process(record.dagster_run)
    if record is None or process is None or not was_here(record.dagster_run):
        return True
    return not process.is_alive
