"""Adds archives, restores and TTLs to the lake's operations."""

from collections.abc import Sequence
from typing import Protocol

from lakehouse.base.clock import now_ms
from lakehouse.base.predicted_and_actual import Figure
from lakehouse.base.reasons import Explained, Reason
from lakehouse.compact.plan.estimate import run_price
from lakehouse.declare.journal_records import UpkeepOperation
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import record_if_possible


class Outcome(Protocol):
    """What an archive or a TTL did; `version_after` is `None` if it committed nothing."""

    @property
    def plan(self) -> Explained: ...
    @property
    def version_after(self) -> int | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def figures(self) -> Sequence[Figure]: ...


def record_outcome(lake: Lake, table: Table, kind: str, outcome: Outcome) -> None:
    """Adds an operation that committed to the table."""
    if outcome.version_after is not None:
        record_moved_rows(
            lake,
            table,
            kind,
            version=outcome.version_after,
            seconds=outcome.seconds,
            reason=outcome.plan.reason,
            figures=outcome.figures,
        )


def record_moved_rows(
    lake: Lake,
    table: Table,
    kind: str,
    *,
    version: int,
    seconds: float,
    reason: Reason | None = None,
    figures: Sequence[Figure] = (),
) -> None:
    """Adds an operation of this kind, whose last commit to the table is `version`."""
    ended_ms = now_ms()
    operation = UpkeepOperation(
        table=table.key,
        kind=kind,
        operation_id=f"version-{version}",
        started_ms=ended_ms - int(seconds * 1000),
        ended_ms=ended_ms,
        reason="" if reason is None else reason.name,
        seconds=seconds,
        vcpu_seconds=seconds * table.prices.vcpus,
        usd=run_price(table.prices, seconds=seconds),
        figures=tuple(figures),
    )
    record_if_possible(lake, operation)
