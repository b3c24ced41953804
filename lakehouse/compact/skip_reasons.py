"""Finds what holds a table back now, and refuses upkeep of a held table.

The facts are in the declaration, the pauses, the lake's operations and the log. The rules are in
`compact/plan/decision.py`.
"""

from collections.abc import Sequence

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.installation import is_installed
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.compact.plan.circuit_breaker import (
    BreakerState,
    Rewrites,
    assess_breaker,
    find_rewrites,
    tries_of,
)
from lakehouse.compact.plan.decision import find_hold, persons_hold
from lakehouse.compact.tries import failed_tries
from lakehouse.declare.compaction import policy_for
from lakehouse.declare.journal_records import CompactionTry
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commits
from lakehouse.lake.lake import Lake
from lakehouse.lake.pauses import pause_of


def breaker_of(
    lake: Lake,
    table: Table,
    history: Commits | None,
    *,
    failures: Sequence[CompactionTry] | None = None,
    rewrites: Rewrites | None = None,
) -> BreakerState | None:
    """The table's breaker (`None` if closed), from its failures and the log's rewrites.

    Without a `history`, only the failures count. If the caller does not pass
    `failures` and `rewrites`, they are read.
    """
    if failures is None:
        failures = failed_tries(lake, table.key)
    tries = failures if history is None else tries_of(history, failures)
    rewrites = rewrites or (Rewrites() if history is None else find_rewrites(history))
    return assess_breaker(tries, rewrites, now_ms())


def hold_now(
    lake: Lake,
    table: Table,
    history: Commits | None,
    *,
    failures: Sequence[CompactionTry] | None = None,
) -> Explanation | None:
    """Why the sensor or the table's schedule must not compact the table now, or `None`.

    A person may still compact the table, unless `refuse_held` or the compaction itself refuses it.
    """
    pause = pause_of(lake, table.key)
    breaker = breaker_of(lake, table, history, failures=failures)
    return find_hold(table, pause=pause, breaker=breaker, now_ms=now_ms())


def without_spark(table_key: str, engine: str | None) -> Explanation | None:
    """The hold of a table that only Spark can compact, where Spark is not installed; or `None`."""
    if engine != "spark" or is_installed("pyspark"):
        return None
    why = "only Spark can compact it, and Spark is not installed here"
    return Reason.RECOMMEND_ONLY.explain(why=why, table=table_key)


def refuse_held(lake: Lake, table: Table) -> None:
    """Refuses to compact a table that is paused, or whose declaration opts out.

    Raises:
        Refused: the table is held. The message names `--anyway`, which overrides the hold.
    """
    pause = pause_of(lake, table.key)
    hold = persons_hold(policy_for(table.layer, table.compaction), pause, now_ms())
    if hold is not None:
        raise Refused(
            f"compact {table.key}: {hold.sentence}. To compact it all the same, use: "
            f"lakehouse compact {table.key} --anyway"
        )


def refuse_upkeep(lake: Lake, table: Table, command: str) -> None:
    """Refuses a `vacuum` or another upkeep `command` of a table that a person paused.

    A vacuum is also refused if the declaration opts out.
    """
    pause = pause_of(lake, table.key)
    why = ""
    if pause is not None and pause.holds(now_ms()):
        why = pause.explanation.sentence
    if command == "vacuum" and table.vacuum.mode == "off":
        why = "its declaration says Vacuum(mode='off')"
    if why:
        raise Refused(
            f"{command} of {table.key}: {why}. To run it all the same, use "
            f"lakehouse {command} {table.key} --anyway"
        )
