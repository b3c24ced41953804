"""Plans which rows of a table have expired, and in which steps they are deleted.

1. The cutoff is `Ttl.days` before now, or before the newest row. It does not change during a run:
   all steps delete rows before this cutoff, and no other rows. A row without a time is kept.
2. A file is expired if all its rows have a time before the cutoff. A file straddles the cutoff if
   it is not expired, but may have rows before the cutoff.
3. Partitions in which every file is expired are removed by metadata alone. If the table is
   partitioned by the time column, no other step is needed.
4. In the other partitions with expired or straddling files (or in the whole unpartitioned table),
   Delta removes expired files, and rewrites straddling files or marks their rows in deletion
   vectors. Each step takes whole partitions, with up to `Compaction.max_bytes_per_run` bytes of
   straddling files. A larger partition has its own step.

**Safety properties** (tests in `test_plan.py`)
- No step deletes rows at the cutoff or later, or rows without a time.
- A file without statistics never counts as expired. Neither such a file nor a time more than a day
  in the future determines the newest row.
- In an adopted table, no partition is removed by metadata alone, unless the table is partitioned by
  the time column: another program may add new rows to a partition at the same moment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakehouse.core.costs.compaction_estimate import run_price
from lakehouse.core.costs.compaction_speed import MergeWork, Rates
from lakehouse.core.declaration.archive import Ttl
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Merge
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.delta.snapshot import Column, DataFile, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.reasons import Explained, Explanation, Reason
from lakehouse.core.text import count_of, size_text, utc_text
from lakehouse.core.ttl.facts import TtlFacts
from lakehouse.core.ttl.steps import TtlStep, files_by_age, plan_steps, total_rows
from lakehouse.core.units import DAY_MS

TIME_TYPES = ("date", "timestamp", "timestamp_ntz")
# A row's time may be this much later than now, because clocks differ. It then counts as now. Later
# times are ignored.
_CLOCK_AHEAD_MS = DAY_MS
_FIGURES = (
    "table",
    "version",
    "column",
    "clock",
    "cutoff_ms",
    "newest_ms",
    "expired_files",
    "expired_bytes",
    "straddling_files",
    "straddling_bytes",
    "null_rows",
    "gone_ms",
    "least_rows",
    "most_rows",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlPlan(Explained):
    """The steps that delete a table's rows before `cutoff_ms`. Without steps, `reason` says why.

    - `cutoff_ms`: `None` if `clock="newest_row"` and the time of no row is known.
    - `newest_ms`: the newest known time of a row, at most now; `None` unless `clock="newest_row"`.
    - `expired_files`, `expired_bytes`: files in which all rows are before the cutoff.
    - `straddling_files`, `straddling_bytes`: other files that may have rows before the cutoff.
    - `null_rows`: rows without a time, which are kept; `None` if unknown.
    - `gone_ms`: the time from which a vacuum deletes the removed files.
    """

    table: str
    version: int
    column: str
    clock: str
    cutoff_ms: int | None
    newest_ms: int | None
    steps: tuple[TtlStep, ...]
    expired_files: int
    expired_bytes: int
    straddling_files: int
    straddling_bytes: int
    null_rows: int | None
    gone_ms: int
    seconds: float
    usd: float
    notes: tuple[str, ...] = ()

    @property
    def least_rows(self) -> int:
        """The minimum number of deleted rows."""
        return sum(step.least_rows for step in self.steps)

    @property
    def most_rows(self) -> int | None:
        """The maximum number of deleted rows; `None` if unknown."""
        return total_rows([step.most_rows for step in self.steps])

    @property
    def figures(self) -> dict[str, Any]:
        """The plan without its steps and notes, for the metadata of the run's commits."""
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {
            **figures,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "seconds": round(self.seconds, 3),
            "usd": round(self.usd, 9),
        }

    def as_json(self) -> dict[str, Any]:
        """The plan in its documented JSON shape."""
        steps = [
            {
                "by_metadata": step.by_metadata,
                "partitions": None if step.partitions is None else len(step.partitions),
                "files": len(step.files),
                "scanned_bytes": step.scanned_bytes,
                "least_rows": step.least_rows,
                "most_rows": step.most_rows,
            }
            for step in self.steps
        ]
        return {**self.figures, "steps": steps, "notes": list(self.notes)}


def time_column(table: Table, ttl: Ttl, snapshot: Snapshot) -> Column:
    """The time column of a table's TTL.

    Raises:
        Refused: the column does not exist, or is not a date or timestamp.
    """
    for column in snapshot.columns:
        if column.name.lower() == ttl.column.lower():
            if column.type in TIME_TYPES:
                return column
            raise Refused(
                f"TTL of {table.key}: the column {column.name} is {column.type}. Use a DATE or "
                "TIMESTAMP column"
            )
    names = ", ".join(column.name for column in snapshot.columns if column.type in TIME_TYPES)
    raise Refused(
        f"TTL of {table.key}: there is no column {ttl.column}. Use one of its dates and "
        f"timestamps: {names or 'none'}"
    )


def plan_ttl(table: Table, ttl: Ttl, facts: TtlFacts, *, rates: Rates, now_ms: int) -> TtlPlan:
    """The plan of a run now.

    Raises:
        Refused: the table does not allow deletions, or as `time_column`.
    """
    snapshot = facts.snapshot
    column = time_column(table, ttl, snapshot)
    if snapshot.properties.get("delta.appendOnly", "false").lower() == "true":
        raise Refused(
            f"TTL of {table.key}: its property delta.appendOnly forbids deletions. Either set the "
            "property to false, or remove ttl= from the declaration"
        )
    newest_ms = None
    clock_ms: int | None = now_ms
    if ttl.clock == "newest_row":
        newest_ms = _newest_ms(facts, now_ms)
        clock_ms = newest_ms
    cutoff_ms = None if clock_ms is None else clock_ms - ttl.days * DAY_MS
    if cutoff_ms is not None and column.type == "date":
        cutoff_ms -= cutoff_ms % DAY_MS  # the day of the cutoff is kept whole
    expired, straddling = files_by_age(facts, cutoff_ms)
    if column.name in snapshot.partition_columns:
        straddling = ()  # all rows of a file have the same time, or no time
    steps = tuple(plan_steps(table, facts, column, expired, straddling))
    null_counts = [facts.bounds_of(file).null_count for file in snapshot.files]
    work = MergeWork(
        files_removed=len(expired) + len(straddling),
        files_added=len(straddling),
        bytes_removed=sum(step.scanned_bytes for step in steps),
    )
    seconds = 0.0
    if steps:
        seconds = rates.warm_seconds(work) + rates.seconds_fixed * (len(steps) - 1)
    plan = TtlPlan(
        explanation=_explanation(ttl, cutoff_ms, newest_ms, expired, straddling),
        table=table.key,
        version=snapshot.version,
        column=column.name,
        clock=ttl.clock,
        cutoff_ms=cutoff_ms,
        newest_ms=newest_ms,
        steps=steps,
        expired_files=len(expired),
        expired_bytes=sum(file.size_bytes for file in expired),
        straddling_files=len(straddling),
        straddling_bytes=sum(file.size_bytes for file in straddling),
        null_rows=total_rows(null_counts),
        gone_ms=now_ms + (retention_ms_of(snapshot.properties) or 0),
        seconds=seconds,
        usd=run_price(rates.prices, seconds=seconds),
    )
    if not steps:
        return plan
    return replace(plan, notes=tuple(_notes(plan, table, facts)))


def _newest_ms(facts: TtlFacts, now_ms: int) -> int | None:
    """The newest known time of a row, at most now; `None` if no time is known.

    The minimum of a file is used if its maximum is too far in the future, or if the rows with the
    maximum may be deleted. A file whose minimum is too far in the future is ignored.
    """
    latest_ms = now_ms + _CLOCK_AHEAD_MS
    newest_ms: int | None = None
    for file in facts.snapshot.files:
        bounds = facts.bounds_of(file)
        time_ms = bounds.max_ms if bounds.is_tight else None
        if time_ms is None or time_ms > latest_ms:
            time_ms = bounds.min_ms
        if time_ms is not None and time_ms <= latest_ms:
            newest_ms = time_ms if newest_ms is None else max(newest_ms, time_ms)
    return None if newest_ms is None else min(newest_ms, now_ms)


def _explanation(
    ttl: Ttl,
    cutoff_ms: int | None,
    newest_ms: int | None,
    expired: Sequence[DataFile],
    straddling: Sequence[DataFile],
) -> Explanation:
    if cutoff_ms is None:
        why = f"the log records no time of {ttl.column}, so the newest row is unknown"
        return Reason.PLAN_REFUSED.explain(why=why)
    clock = "now" if newest_ms is None else f"the newest row ({utc_text(newest_ms)})"
    age = f", {count_of(ttl.days, 'day')} before {clock}"
    if not expired and not straddling:
        numbers = {"what": "row", "cutoff": cutoff_ms}
        return Explanation(Reason.NOTHING_PAST_THE_CUTOFF, numbers, age)
    sizes = size_text(sum(file.size_bytes for file in expired))
    rows = f"all rows of {count_of(len(expired), 'file')} ({sizes})"
    if straddling:
        sizes = size_text(sum(file.size_bytes for file in straddling))
        straddling_files = f"of up to {count_of(len(straddling), 'file')} ({sizes})"
        rows = (
            f"{rows}, and some {straddling_files}" if expired else f"some rows {straddling_files}"
        )
    return Explanation(Reason.PAST_THE_CUTOFF, {"what": rows, "cutoff": cutoff_ms}, age)


def _notes(plan: TtlPlan, table: Table, facts: TtlFacts) -> Iterable[str]:
    if plan.least_rows == plan.most_rows:
        rows = f"{plan.least_rows:,} rows"
    else:
        most = "an unknown number of" if plan.most_rows is None else f"at most {plan.most_rows:,}"
        rows = f"at least {plan.least_rows:,} and {most} rows"
    steps = count_of(len(plan.steps), "step")
    yield (
        f"{rows} are deleted in {steps}. They can still be read as older versions; "
        f"the first vacuum after {utc_text(plan.gone_ms)} deletes their files for good"
    )
    if plan.null_rows:
        verb = "is" if plan.null_rows == 1 else "are"
        yield f"{count_of(plan.null_rows, 'row')} without a time {verb} kept"
    unknown = sum(facts.bounds_of(file).max_ms is None for file in facts.snapshot.files)
    if unknown and plan.null_rows is None:
        yield (
            f"Delta reads {count_of(unknown, 'file')} without statistics of {plan.column} as a "
            f"whole. Use delta.dataSkippingStatsColumns with {plan.column} for new files"
        )
    limit_bytes = table.compaction.max_bytes_per_run
    largest = max(step.scanned_bytes for step in plan.steps)
    if limit_bytes and largest > limit_bytes:
        yield (
            f"one step may rewrite {size_text(largest)}, more than max_bytes_per_run "
            f"({size_text(limit_bytes)}), since no smaller part can be selected. Use "
            "delta.enableDeletionVectors, or partitions by time"
        )
    if table.archive is not None:
        yield "archived rows stay in the archive until Archive.keep_days have passed"
    if isinstance(table.write, Merge):
        yield "a later change of a deleted key inserts its row again, until the next run"
