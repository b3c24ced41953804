"""One vacuum: what the plan dooms, deleted once Delta dooms it, too.

1. Our clock is compared with the storage's: the horizon is a time of ours, the files' times are its own.
2. The plan is made, from the log and from the report, a listing, or the log alone. Where nothing is to go, nothing else is asked.
3. The guard is taken, and held to the end. The retention that the declaration asks for is set, if the table has another one.
   If the table has a newer version by then, the plan is made again.
4. Delta is asked which of the plan's files it would delete (VACUUM … USING INVENTORY … DRY RUN, over exactly these). What it spares stays.
5. Batch by batch it is asked once more what others did meanwhile (`recheck.py`): tables beside that borrow more, tables made in the folders
   of these files, files written again, and last the table's own log, by whose newest version and retention the batch is judged.
   What is still doomed then is deleted.
6. The journal gets what was to go, what went, and what did not and why; also if an error ended it.

**Safety properties**
- A file goes only if our reading of the log and Delta's own agree. If Delta names a file that it
  was not asked about, or spares all of them, nothing is deleted and the vacuum ends as `Broken`
  (`test_meanwhile.py`).
- Nothing is deleted that is not in the plan, so a dry run shows everything that can go
  (`test_run.py`, `test_faults.py`).
- A log that is gone or was put back to an older state stops the deletion, and so does the log of a
  neighbour that became unreadable (`test_meanwhile.py`, `test_unread.py`).
- Deleting a file twice has no further effect: after a crash at any point the next vacuum continues
  (`long/test_vacuum_kills.py`, `test_meanwhile.py`).
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.costs.estimate import price
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.vacuum_policy import type_of_mode
from lakehouse.core.errors import LakehouseError, Refused, Transient
from lakehouse.core.vacuum.candidates import Candidate
from lakehouse.core.vacuum.facts import FAILED_NAMED, VacuumRecord, written_once
from lakehouse.core.vacuum.mode import DELETE_KEYS
from lakehouse.core.vacuum.outcome import VacuumOutcome
from lakehouse.core.vacuum.plan import VacuumPlan, plan_rest
from lakehouse.engine.clock import now_ms, pause_about
from lakehouse.engine.journal.vacuums import record_vacuum
from lakehouse.engine.lake import Lake
from lakehouse.engine.lake_owner import refuse_table_of_another_lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import translated
from lakehouse.engine.table_lock import hold
from lakehouse.engine.vacuum.delta import agreed
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.log_state import has_newer_version
from lakehouse.engine.vacuum.recheck import Recheck
from lakehouse.engine.vacuum.table_facts import VacuumReading, gather, plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOCK = "_lakehouse/clock"
_CLOCK_OFF_MS = 300_000
# S3 throttles at 3,500 deletions per second and prefix.
_DELETES_PER_SECOND = 3_000
_PAUSES_SECONDS = (0.5, 2.0, 8.0)


class _Work:
    """The work of one vacuum since now, and its cost; `spared` and `failed` are name -> why."""

    def __init__(self, lake: Lake, table: Table, owner: str | None = None) -> None:
        self._lake, self._table, self._run = lake, table, owner or uuid4().hex
        self._began_ms, self._started, self._before = (
            now_ms(),
            time.monotonic(),
            lake.store.requests.copy(),
        )
        self.deleted_files = self.deleted_bytes = 0
        self.spared, self.failed = dict[str, str](), dict[str, str]()

    def count(self, gone: Iterable[Candidate]) -> None:
        """These were deleted."""
        for each in gone:
            self.deleted_files += 1
            self.deleted_bytes += each.size_bytes

    def journal(
        self, known: VacuumReading, planned: VacuumPlan, *, is_complete: bool
    ) -> VacuumOutcome:
        """The outcome, written down; it is complete if all that was past the retention was gone through."""
        seconds, requests = (
            time.monotonic() - self._started,
            self._lake.store.requests - self._before,
        )
        on_s3 = self._lake.on_s3(self._table.key)
        kept = sorted({*self.spared, *planned.lent}) if planned.log_only else []
        is_whole = not planned.left_count and max(len(self.failed), len(kept)) <= FAILED_NAMED
        record = VacuumRecord(
            started_ms=self._began_ms,
            ended_ms=now_ms(),
            mode=planned.mode,
            report=planned.report,
            version=planned.version,
            horizon_ms=planned.horizon_ms,
            predicted_files=planned.file_count,
            predicted_bytes=planned.size_bytes,
            predicted_requests=sum(planned.requests.values()),
            predicted_seconds=planned.seconds,
            predicted_usd=planned.usd,
            deleted_files=self.deleted_files,
            deleted_bytes=self.deleted_bytes,
            spared=len(self.spared),
            seconds=seconds,
            usd=price(
                self._table.prices,
                seconds=seconds,
                get_requests=sum(
                    count for name, count in requests.items() if name.startswith(("Get", "Head"))
                ),
                put_requests=sum(
                    count for name, count in requests.items() if name.startswith(("Put", "List"))
                ),
            ),
            failed=dict(islice(self.failed.items(), FAILED_NAMED)),
            kept=kept[:FAILED_NAMED],
            lists_saved=planned.lists_saved,
            is_complete=is_complete and is_whole,
            # A listing of a moment ago shows what is there; the log and a report do not, and S3 calls a missing key deleted, too.
            is_at_most=on_s3
            and planned.mode != "FULL"
            and any(written_once(each.name) for each in planned.candidates),
            run=self._run,
            requests=dict(requests),
            table_id=known.facts.log.snapshot.table_id,
            committed_ms=known.facts.log.history.committed_ms_of(planned.version),
        )
        record_vacuum(self._lake.store, self._table.key, record)
        return VacuumOutcome(plan=planned, record=record, spared=self.spared, failed=self.failed)


def vacuum(
    run: LakeFacts,
    open_spark: "Callable[[], SparkSession]",
    table: Table,
    *,
    mode: type_of_mode | None = None,
    owner: str | None = None,
) -> VacuumOutcome:
    """The outcome of a vacuum of `table`, beside its plan; where there is nothing to do, no session is opened. `owner` says who asks.

    Raises:
        Refused: there is no table, or it may not be vacuumed now, or not by this mode.
        Transient: the table is held by somebody else, or the server or the storage is gone; what was deleted before is journalled.
        Broken: Delta's answer and ours cannot both be right, or live files are missing.
    """
    lake = run.lake
    if isinstance(table.write, Adopted):
        refuse_table_of_another_lake(lake, table.write.uri, asked=f"vacuum of {table.key}")
    check_clock(lake, table.key)
    work = _Work(lake, table, owner)
    known, planned = _planned(run, table, mode)
    run.remember_found()
    retention = _retention_to_set(known, table)
    if planned.candidates or retention:
        spark = open_spark()
        with (
            translated(table.key, operation="vacuum"),
            hold(lake, spark, table.key, owner=owner or f"vacuum of {table.key}"),
        ):
            if retention:
                spark.sql(statements.set_properties(lake.table_uri(table.key), retention))
            if has_newer_version(lake, known.facts.log):
                known, planned = _planned(run, table, mode)
            try:
                _carry_out(run, spark, table, known, planned, work)
            except BaseException:
                with contextlib.suppress(
                    LakehouseError
                ):  # storage that does not answer must not hide what went wrong
                    work.journal(known, planned, is_complete=False)
                raise
    return work.journal(known, planned, is_complete=True)


def rehearse(
    run: LakeFacts,
    open_spark: "Callable[[], SparkSession]",
    table: Table,
    *,
    mode: type_of_mode | None = None,
) -> VacuumPlan | None:
    """The plan of a vacuum with exactly the files that would go now, Delta asked; nothing is touched. `None` where there is no table.

    Where the vacuum would set another retention first, Delta cannot be asked by that: these are the files by our plan, and a note says so.
    Errors as `vacuum`.
    """
    if run.log(table.key) is None:
        return None
    known, planned = _planned(run, table, mode)
    if not planned.candidates:
        return planned
    if setting := _retention_to_set(known, table):
        said = ", ".join(f"{name} to {value}" for name, value in setting.items())
        return replace(
            planned,
            notes=(
                *planned.notes,
                f"the vacuum would first set {said}; by that Delta was not asked yet",
            ),
        )
    with translated():
        spared, uri = dict[str, str](), run.lake.table_uri(table.key)
        going = _agreed(open_spark(), uri, planned, spared)
        going = Recheck(run, known, planned, spared).still_going(going)
        return plan_rest(planned, known.facts, going, spared, prices=table.prices)


def check_clock(lake: Lake, table_key: str) -> None:
    """Refuses where this machine's clock and the storage's differ by minutes; a bucket elsewhere is asked by what its answers say.

    What is past the retention by one of them need not be by the other.
    """
    lake.store.put(_CLOCK, b"")
    found = lake.store.stat(_CLOCK)
    times_ms = (found.modified_ms if found else None, lake.clock_ms(table_key))
    off_ms = max((now_ms() - ms for ms in times_ms if ms is not None), key=abs, default=0)
    if abs(off_ms) > _CLOCK_OFF_MS:
        raise Refused(
            f"vacuum: this machine's clock is {off_ms / 1_000:.0f} s off the storage's, at most {_CLOCK_OFF_MS / 1_000:.0f} s are allowed; "
            "set it by a time server, then try again"
        )


def _planned(
    run: LakeFacts, table: Table, mode: type_of_mode | None
) -> tuple[VacuumReading, VacuumPlan]:
    known = gather(run, table)
    planned = known and plan(run, table, mode=mode, gathered=known)
    if known is None or planned is None:
        raise Refused(
            f"vacuum of {table.key}: there is no table yet; accepted: materialize {table.key} first"
        )
    return known, planned


def _agreed(
    spark: "SparkSession", uri: str, planned: VacuumPlan, spared: dict[str, str]
) -> list[Candidate]:
    """The rest of the plan after Delta was asked."""
    going = agreed(spark, uri, planned.table, planned.candidates)
    kept = {each.name for each in planned.candidates} - {each.name for each in going}
    spared |= dict.fromkeys(kept, "Delta would not delete it")
    return going


def _carry_out(
    run: LakeFacts,
    spark: "SparkSession",
    table: Table,
    known: VacuumReading,
    planned: VacuumPlan,
    work: _Work,
) -> None:
    going = _agreed(spark, run.lake.table_uri(table.key), planned, work.spared)
    recheck = Recheck(run, known, planned, work.spared)
    per_second = _DELETES_PER_SECOND if run.lake.on_s3(table.key) else 0
    for batch in _batches(going, per_second=per_second):
        _delete(run.lake, planned.table, batch, recheck, work)


def _batches(candidates: Sequence[Candidate], *, per_second: int) -> Iterator[Sequence[Candidate]]:
    """A thousand at a time, or what a second allows, since S3 throttles who goes faster; none makes up for a slow one. 0 is no limit."""
    size = min(DELETE_KEYS, per_second or DELETE_KEYS)
    due = time.monotonic()
    for start in range(0, len(candidates), size):
        time.sleep(max(0.0, due - time.monotonic()))  # the declared pace of deletions
        due = time.monotonic() + (size / per_second if per_second else 0.0)
        yield candidates[start : start + size]


def _delete(
    lake: Lake, table: str, batch: Sequence[Candidate], recheck: Recheck, work: _Work
) -> None:
    """Deletes what may go of a batch. Each further try is checked anew: minutes may have passed before the storage said nothing."""
    going, tried = [*batch], False
    for pause in (*_PAUSES_SECONDS, None):
        try:
            rest = recheck.still_going(going)
            if (
                tried
            ):  # a file that is gone, and was not spared, went by a try whose answer was lost
                left = {*work.spared, *(each.name for each in rest)}
                work.count(each for each in going if left.isdisjoint((each.name, each.goes_with)))
            going, tried = rest, True
            failed = lake.store.delete_each([f"{table}/{each.name}" for each in going])
            break
        except Transient as error:
            if pause is None:
                work.failed |= {each.name: str(error) for each in going}
                raise
            pause_about(pause)  # the storage asks for less
    work.failed |= {
        each.name: failed[name] for each in going if (name := f"{table}/{each.name}") in failed
    }
    work.count(each for each in going if each.name not in work.failed)


def _retention_to_set(known: VacuumReading, table: Table) -> dict[str, str]:
    """The properties that the declaration asks for; none where the table has them, since an ALTER aborts other writers."""
    has = known.facts.log.snapshot.properties
    return {
        name: value
        for name, value in table.vacuum.properties_beside(has).items()
        if has.get(name) != value
    }
