"""Deletes loaded files from the landing area of a landing with `after_load="delete"`.

1. Make the plan from the ledger, a listing, the table's log and the quarantine.
2. For each batch of the plan, right before deleting its files: make the plan again if the table or
   its quarantine has a new commit, or if one of the two logs was replaced. Keep files that the new
   plan does not name. Look up the remaining files, and keep those that changed after their load.
3. Delete the batch's files.

A table's facts hold only its newest commits. At most one load a day reads older ones: it is slow.

**Safety properties** (tests in `test_retire.py`)
- Only files that the newest plan names are deleted.
- A plan names a batch only if all commits were read, from the newest back to the one that loaded
  the batch. If the log no longer has these commits, the batch's files are kept.
- If a run dies after any step, the next run handles the remaining files.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from typing import NamedTuple

import pyarrow.parquet as pq

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import LogFile
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.ingest.batches import Batch, LandedFile, may_be_same
from lakehouse.core.ingest.retirement import (
    RetirementPlan,
    judge_files,
    plan_retirement,
    read_arrivals,
)
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.ingest.quarantine.entries import QuarantinedBatches, quarantine_key
from lakehouse.engine.journal.planned_batches import PlannedBatches, landed_files
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver

_STATS_AT_ONCE = 16


class _Landed(NamedTuple):
    """The ledger's batches, and the files in the landing area by name."""

    batches: Sequence[Batch]
    present: Mapping[str, LandedFile]


class _CurrentPlan(NamedTuple):
    """A plan, and the state of the logs from which it was made.

    `logs` has the newest log file of the table and of its quarantine by key, or `None` if there is
    no such table. With `read_older`, commits older than the table's facts were read.
    """

    plan: RetirementPlan
    logs: Mapping[str, LogFile | None]
    read_older: bool


def plan_landed(
    lake: Lake, table: Table, batches: PlannedBatches, facts: TableFacts | None
) -> RetirementPlan:
    """The files that `retire` would delete from a table's landing area now.

    Commits that are older than the table's facts are always read if the plan needs them.
    """
    return _make_plan(lake, table, _landed(lake, table, batches), facts, reads_older=True).plan


def retire(
    lake: Lake, table: Table, batches: PlannedBatches, facts: TableFacts | None
) -> tuple[RetirementPlan, int]:
    """Deletes loaded files. Returns the plan, and the number of files that could not be deleted.

    The plan is the one from before the first deletion. Some of its files are kept if a later check
    finds a reason. The caller holds the table's lock.

    Raises:
        Refused: the landing area is behind a link.
        Broken: a data file of the quarantine is outside of the quarantine's folder.
    """
    if table.landing.after_load == "keep":
        return RetirementPlan(action="keep", kept={}), 0
    landed = _landed(lake, table, batches)
    marker = f"_lakehouse/retired/{table.key}"
    reads_older = _is_a_day_old(lake, marker)
    current = _make_plan(lake, table, landed, facts, reads_older=reads_older)
    plan = current.plan
    planned = {*current.plan.files}
    failed_count = 0
    for batch in plan.batches:
        if any(lake.has_moved_on(key, newest) for key, newest in current.logs.items()):
            newest_facts = lake.facts(table.key)
            current = _make_plan(lake, table, landed, newest_facts, reads_older=reads_older)
            planned = {*current.plan.files}
        still_planned = [file for file in batch.files if file in planned]
        unchanged = _still_as_loaded(lake, table.key, batch.prefix, still_planned)
        paths = [f"{batch.prefix}{file.name}" for file in unchanged]
        failed_count += len(lake.store.delete_each(paths))
    if current.read_older:
        lake.store.put(marker, str(now_ms()).encode())
    return plan, failed_count


def retire_first(
    lake: Lake,
    table: Table,
    batches: PlannedBatches,
    facts: TableFacts | None,
    report: Callable[[str], None],
) -> None:
    """Calls `retire` at the beginning of a load, and reports the result.

    A refusal or a storage error does not stop the load; the next load tries again.
    """
    try:
        plan, failed = retire(lake, table, batches, facts)
    except Transient:
        return
    except Refused as error:
        report(str(error))
        return
    if plan.files:
        failures = f"; {failed} of them could not be deleted" if failed else ""
        report(f"{table.key}: {plan.sentence}{failures}")


def _landed(lake: Lake, table: Table, batches: PlannedBatches) -> _Landed:
    """The ledger's batches, and the files in the landing area by name.

    Raises:
        Refused: the landing area is behind a link, where another table may still load files.
    """
    prefix = table.landing.prefix.rstrip("/")
    if PathResolver(lake)(f"{lake.settings.spark_root}/{prefix}") != prefix:
        raise Refused(
            f"landing of {table.key}: {lake.settings.root}/{prefix} lies behind a link, so its "
            "loaded files are kept. Use a folder without links, or after_load='keep'"
        )
    present = {file.name: file for file in landed_files(lake.store, table.landing)}
    return _Landed(batches.known(), present)


def _make_plan(
    lake: Lake,
    table: Table,
    landed: _Landed,
    facts: TableFacts | None,
    *,
    reads_older: bool,
) -> _CurrentPlan:
    """Makes a plan from the table's `facts` and its quarantine.

    With `reads_older`, commits older than the facts are read, too, if the plan needs them.
    """
    quarantine = lake.facts(quarantine_key(table.key))
    quarantined_paths = _quarantined_paths(lake, table.key, quarantine)
    judged = judge_files(landed.batches, table.landing, landed.present, held=quarantined_paths)
    arrivals = None
    read_older = False
    if facts is not None:
        # The batches with a file that may be deleted, if the log allows it.
        open_batches = [batch.number for batch, why in judged if not all(why.values())]
        oldest = min(open_batches, default=0)
        arrivals = read_arrivals(facts, reversed(facts.history.commits), oldest=oldest)
        first = arrivals.first_version
        needs_older = bool(open_batches) and not arrivals.settles(oldest)
        # Whether the log still has commits that are older than the facts.
        if needs_older and first is not None and lake.has_version(table.key, first - 1):
            read_older = reads_older
            arrivals = replace(arrivals, is_partial=True)
            if reads_older:
                commits = newest_first(lake.store, facts.history)
                arrivals = read_arrivals(facts, commits, oldest=oldest)
    quarantined = QuarantinedBatches(lake, table.key, quarantine)
    plan = plan_retirement(
        judged, table.landing, arrivals, quarantined=quarantined, now_ms=now_ms()
    )
    logs = {
        table.key: facts and facts.newest,
        quarantine_key(table.key): quarantine and quarantine.newest,
    }
    return _CurrentPlan(plan, logs, read_older)


def _still_as_loaded(
    lake: Lake, table_key: str, prefix: str, files: Sequence[LandedFile]
) -> list[LandedFile]:
    """Looks up each file below `prefix`; returns the files that have not changed since the load."""
    with ThreadPoolExecutor(max_workers=_STATS_AT_ONCE) as pool:
        present = [*pool.map(lake.store.stat, [f"{prefix}{file.name}" for file in files])]
    return [
        file
        for file, current in zip(files, present, strict=True)
        if current is not None
        and current.size_bytes == file.size_bytes
        and abs(current.modified_ms - file.modified_ms) <= lake.times_apart_ms(table_key)
        and may_be_same(current.etag, file.etag)
    ]


def _is_a_day_old(lake: Lake, marker: str) -> bool:
    """Whether a day has passed since a load read older commits; `marker` records that time."""
    try:
        return now_ms() - int(lake.store.read(marker)) >= DAY_MS
    except (FileNotFoundError, ValueError):
        return True


def _quarantined_paths(lake: Lake, table_key: str, facts: TableFacts | None) -> frozenset[str]:
    """The landed files named in the data files of a table's quarantine.

    Entries that deletion vectors hide are included.
    """
    if facts is None:
        return frozenset()
    paths = set[str]()
    for file in facts.snapshot.files:
        name = name_in_table(file.path)
        if name is None:
            raise Broken(
                f"landing of {table_key}: data file {file.path} of its quarantine lies outside of "
                f"{quarantine_key(table_key)}, so no landed file is deleted. Use a quarantine that "
                "is not a shallow clone"
            )
        data = lake.store.read(f"{quarantine_key(table_key)}/{name}")
        entries = pq.read_table(BytesIO(data), columns=["source_file"])
        paths |= set(entries["source_file"].to_pylist())
    return frozenset(paths)
