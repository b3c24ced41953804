"""Records compactions that did not succeed, for the circuit breaker and the accounts of tables."""

from collections.abc import Mapping
from uuid import uuid4

from lakehouse.base.clock import now_ms
from lakehouse.base.text import DAY_MS
from lakehouse.compact.plan.estimate import run_price
from lakehouse.declare.journal_records import CompactionTry, UpkeepOperation
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.operations import read_operations, record_if_possible

# A breaker opens after fewer failures in a row than `_NEWEST`, and for a few days at most.
_NEWEST = 20
_DAYS = 30

Tries = tuple[CompactionTry, ...]


def record_try(lake: Lake, table: Table, attempt: CompactionTry) -> None:
    """Adds an attempt that did not succeed to the lake's operations."""
    prices = table.prices
    operation = UpkeepOperation(
        table=table.key,
        kind="compaction",
        operation_id=uuid4().hex,
        started_ms=attempt.ended_ms - int(attempt.seconds * 1000),
        ended_ms=attempt.ended_ms,
        result=attempt.result,
        why=attempt.why,
        run=attempt.run,
        by_person=attempt.by_person,
        seconds=attempt.seconds,
        vcpu_seconds=attempt.seconds * prices.vcpus,
        usd=run_price(prices, seconds=attempt.seconds),
        detail={"bytes_rewritten": attempt.bytes_rewritten},
    )
    record_if_possible(lake, operation)


def failed_tries(lake: Lake, table_key: str, *, newest: int | None = _NEWEST) -> Tries:
    """The newest attempts of a table that did not succeed, oldest first; see `tries_since`."""
    tries = tries_since(lake, {}, table_key=table_key).get(table_key, ())
    return tries if newest is None else tries[-newest:]


def tries_since(
    lake: Lake, succeeded_ms: Mapping[str, int], *, table_key: str | None = None
) -> dict[str, Tries]:
    """By table: the attempts that did not succeed and ended after its time in `succeeded_ms`.

    They are at most `_DAYS` old, in the order of their end.

    Raises:
        Broken: the lake's operations cannot be read.
    """
    since_ms = now_ms() - _DAYS * DAY_MS
    tries = dict[str, list[CompactionTry]]()
    for each in read_operations(lake, table_key, kind="compaction", since_ms=since_ms):
        if each.result == "succeeded" or each.ended_ms <= succeeded_ms.get(each.table, -1):
            continue
        attempt = CompactionTry(
            ended_ms=each.ended_ms,
            result=each.result,
            bytes_rewritten=each.detail.get("bytes_rewritten", 0),
            seconds=each.seconds or 0.0,
            why=each.why,
            run=each.run,
            by_person=each.by_person,
        )
        tries.setdefault(each.table, []).append(attempt)
    return {key: tuple(found) for key, found in tries.items()}
