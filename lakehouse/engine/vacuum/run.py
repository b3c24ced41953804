"""One vacuum: what the plan dooms, deleted once Delta dooms it, too.

1. The guard is taken, and held to the end. The retention that the declaration asks for is set, if the table has another one.
2. Our clock is compared with the storage's: the horizon is a time of ours, the files' times are its own.
3. The plan is made, from the log and from the report, a listing, or the log alone.
4. Delta is asked which of the plan's files it would delete (VACUUM … USING INVENTORY … DRY RUN, over exactly these). What it spares stays.
5. Batch by batch it is asked once more what others did meanwhile (`recheck.py`): tables made in the folders of these files, files
   written again, tables beside that borrow more, and last the table's own log, by whose newest version and retention the batch is judged.
   What is still doomed then is deleted.
6. The journal gets what was to go, what went, and what did not and why; also if an error ended it.

**Safety properties**
- A file goes only if our reading of the log and Delta's own both doom it. If Delta names one that was not asked about, or spares them
  all, nothing is deleted, and a person has to look.
- Nothing is deleted that is not in the plan, so that a dry run shows everything that can go.
- A log that is gone, or was put back to an older state, and a neighbour that cannot be read any more, stop the deletion.
- Deleting a file twice is deleting it once: after a crash at any point the next vacuum goes on.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.costs.estimate import price
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused, Transient
from lakehouse.core.reasons import Reason
from lakehouse.core.vacuum import DELETE_KEYS, FAILED_NAMED, Doomed, PastVacuum, VacuumPlan, type_of_mode, written_once
from lakehouse.core.vacuum.outcome import VacuumOutcome
from lakehouse.engine.clock import now_ms, pause_about
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.sessions import translated
from lakehouse.engine.table_lock import hold
from lakehouse.engine.vacuum.delta import Located, agreed, located
from lakehouse.engine.vacuum.facts import Gathered, gather, plan
from lakehouse.engine.vacuum.recheck import Recheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOCK = "_lakehouse/clock"
_CLOCK_OFF_MS = 300_000
_PAUSES_SECONDS = (0.5, 2.0, 8.0)


@dataclass(slots=True, kw_only=True)
class _Work:
    """What has happened so far; `spared` and `failed` are name -> why."""

    deleted_files: int = 0
    deleted_bytes: int = 0
    spared: dict[str, str] = field(default_factory=dict[str, str])
    failed: dict[str, str] = field(default_factory=dict[str, str])


class _Account:
    """What a vacuum took since now, for the journal."""

    def __init__(self, lake: Lake, table: Table, owner: str | None) -> None:
        self._lake, self._table, self._run = lake, table, owner or uuid4().hex
        self._began_ms, self._started, self._before = now_ms(), time.monotonic(), lake.store.requests.copy()

    def journal(self, planned: VacuumPlan, work: _Work, *, is_complete: bool) -> VacuumOutcome:
        """The outcome, written down."""
        seconds, requests = time.monotonic() - self._started, self._lake.store.requests - self._before
        past = PastVacuum(
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
            deleted_files=work.deleted_files,
            deleted_bytes=work.deleted_bytes,
            spared=len(work.spared),
            seconds=seconds,
            usd=price(
                self._table.prices,
                seconds=seconds,
                get_requests=sum(count for name, count in requests.items() if name.startswith(("Get", "Head"))),
                put_requests=sum(count for name, count in requests.items() if name.startswith(("Put", "List"))),
            ),
            failed=dict(islice(work.failed.items(), FAILED_NAMED)),
            lists_saved=planned.lists_saved,
            is_complete=is_complete and _is_whole(planned, work),
            # A listing of a moment ago shows what is there; the log and a report do not, and S3 calls a missing key deleted, too.
            is_at_most=self._lake.settings.on_s3 and planned.mode != "FULL" and any(written_once(each.name) for each in planned.doomed),
            run=self._run,
            requests=dict(requests),
        )
        Journal(self._lake.store).record_vacuum(self._table.key, past)
        return VacuumOutcome(plan=planned, past=past, spared=work.spared, failed=work.failed)


def vacuum(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    declared: Sequence[Table],
    *,
    mode: type_of_mode | None = None,
    owner: str | None = None,
) -> VacuumOutcome:
    """What a vacuum of `table` did, beside its plan; a plan that does nothing is not an error. `owner` says who asks.

    Raises:
        Refused: there is no table, or it may not be vacuumed now, or not by this mode.
        Transient: the table is held by somebody else, or the server or the storage is gone; what was deleted before is journalled.
        Broken: Delta's answer and ours cannot both be right, or live files are missing.
    """
    with translated(), hold(lake, spark, table.key, owner=owner or f"vacuum of {table.key}"):
        _set_retention(lake, spark, table)
        check_clock(lake)
        account, work = _Account(lake, table, owner), _Work()
        with located(spark, lake.settings.table_uri(table.key)) as at:
            known = gather(lake, table, declared)
            planned = known and plan(lake, table, declared, mode=mode, gathered=known)
            if known is None or planned is None:
                raise Refused(f"vacuum of {table.key}: there is no table yet; accepted: materialize {table.key} first")
            try:
                _carry_out(lake, spark, table, known, planned, work, at)
            except BaseException:
                with contextlib.suppress(LakehouseError):  # storage that does not answer must not hide what went wrong
                    account.journal(planned, work, is_complete=False)
                raise
        return account.journal(planned, work, is_complete=True)


def vacuum_idle(
    lake: Lake, table: Table, declared: Sequence[Table], *, mode: type_of_mode | None = None, owner: str | None = None
) -> VacuumOutcome | None:
    """The outcome of a vacuum that has nothing to do, journalled, without Spark; `None` where there may be something.

    Raises:
        Refused, Broken: as `vacuum` does.
    """
    check_clock(lake)
    account = _Account(lake, table, owner)
    planned = None if _retention_to_set(lake, table) else plan(lake, table, declared, mode=mode)
    return None if planned is None or planned.doomed else account.journal(planned, _Work(), is_complete=True)


def rehearse(
    lake: Lake, spark: "SparkSession", table: Table, declared: Sequence[Table], *, mode: type_of_mode | None = None
) -> VacuumPlan | None:
    """The plan of a vacuum with exactly the files that would go now, Delta asked; nothing is touched. `None` where there is no table.

    Where the vacuum would set another retention first, Delta cannot be asked by that: these are the files by our plan, and a note says so.

    Raises:
        Refused, Transient, Broken: as `vacuum` would.
    """
    with translated(), located(spark, lake.settings.table_uri(table.key)) as at:
        known = gather(lake, table, declared)
        planned = known and plan(lake, table, declared, mode=mode, gathered=known)
        if known is None or planned is None or not planned.doomed:
            return planned
        if setting := _retention_to_set(lake, table):
            said = ", ".join(f"{name} to {value}" for name, value in setting.items())
            return replace(planned, notes=(*planned.notes, f"the vacuum would first set {said}; by that Delta was not asked yet"))
        work = _Work()
        going = _agreed(spark, planned, work, at)
        return replace(planned, doomed=tuple(Recheck(lake, known, planned, work.spared).still_going(going)))


def check_clock(lake: Lake) -> None:
    """Nothing, if this machine's clock and the storage's agree within minutes.

    Raises:
        Refused: they do not, and what is past the retention by one of them need not be by the other.
    """
    lake.store.put(_CLOCK, b"")
    found = lake.store.stat(_CLOCK)
    off_ms = 0 if found is None else now_ms() - found.modified_ms
    if abs(off_ms) > _CLOCK_OFF_MS:
        raise Refused(
            f"vacuum: this machine's clock is {off_ms / 1_000:.0f} s off the storage's, at most {_CLOCK_OFF_MS / 1_000:.0f} s are allowed; "
            "set it by a time server, then try again"
        )


def _agreed(spark: "SparkSession", planned: VacuumPlan, work: _Work, at: Located) -> list[Doomed]:
    """What is left of the plan when Delta was asked."""
    going = agreed(spark, at, planned.table, planned.doomed)
    kept = {each.name for each in planned.doomed} - {each.name for each in going}
    work.spared |= dict.fromkeys(kept, "Delta would not delete it")
    return going


def _carry_out(lake: Lake, spark: "SparkSession", table: Table, known: Gathered, planned: VacuumPlan, work: _Work, at: Located) -> None:
    going, recheck = _agreed(spark, planned, work, at), Recheck(lake, known, planned, work.spared)
    per_second = table.vacuum.max_deletes_per_second if lake.settings.on_s3 else 0
    for batch in _batches(going, per_second=per_second):
        _delete(lake, planned.table, recheck.still_going(batch), work)


def _batches(doomed: Sequence[Doomed], *, per_second: int) -> Iterator[Sequence[Doomed]]:
    """A thousand at a time, or what a second allows, since S3 throttles who goes faster; none makes up for a slow one. 0 is no limit."""
    size = min(DELETE_KEYS, per_second or DELETE_KEYS)
    due = time.monotonic()
    for start in range(0, len(doomed), size):
        time.sleep(max(0.0, due - time.monotonic()))
        due = time.monotonic() + (size / per_second if per_second else 0.0)
        yield doomed[start : start + size]


def _is_whole(planned: VacuumPlan, work: _Work) -> bool:
    """Whether all that was past the retention was gone through."""
    return planned.reason is not Reason.TOO_LITTLE_PAST and not planned.left_count and len(work.failed) <= FAILED_NAMED


def _delete(lake: Lake, table: str, doomed: Sequence[Doomed], work: _Work) -> None:
    names = {f"{table}/{each.name}": each for each in doomed}
    for pause in (*_PAUSES_SECONDS, None):
        try:
            failed = lake.store.delete_each([*names])
            break
        except Transient as error:
            if pause is None:
                work.failed |= {each.name: str(error) for each in doomed}
                raise
            pause_about(pause)  # the storage asks for less
    work.failed |= {names[name].name: why for name, why in failed.items()}
    work.deleted_files += len(names) - len(failed)
    work.deleted_bytes += sum(each.size_bytes for name, each in names.items() if name not in failed)


def _set_retention(lake: Lake, spark: "SparkSession", table: Table) -> None:
    """The retention that the declaration asks for, in one commit; none where the table has it, since an ALTER aborts other writers."""
    if wanted := _retention_to_set(lake, table):
        spark.sql(statements.set_properties(lake.settings.table_uri(table.key), wanted))


def _retention_to_set(lake: Lake, table: Table) -> dict[str, str]:
    facts = lake.facts(table.key) if table.vacuum.retention_hours else None
    if facts is None:
        return {}
    has = facts.layout.properties
    return {name: value for name, value in table.vacuum.properties_beside(has).items() if has.get(name) != value}
