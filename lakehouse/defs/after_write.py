"""The compaction that a table's own run makes after its write, where the table's strategy says so.

1. The rows are committed before this begins, and stay whatever happens here.
2. The table's guard is taken anew, while the run still holds the table's pool: nobody else's run comes between.
3. What the compaction did is recorded under its own asset, as if it had been a run of its own.
"""

from typing import TYPE_CHECKING

import dagster as dg

from lakehouse.core.errors import Refused, Transient
from lakehouse.core.outcome import CompactionOutcome, WriteOutcome
from lakehouse.core.policy import policy_for
from lakehouse.core.strategy import AfterWrite
from lakehouse.core.table import Table
from lakehouse.core.window import is_open
from lakehouse.defs.keys import compaction_key
from lakehouse.defs.metadata import compaction_metadata
from lakehouse.engine.clock import now_ms
from lakehouse.engine.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact_after_write(
    context: dg.AssetExecutionContext, table: Table, lake: Lake, session: "SparkSession", written: WriteOutcome
) -> Exception | None:
    """Compacts where the strategy says so and the plan finds something; an error that a person must see, to be raised once all is told.

    A compaction that could not be made now is told and no more: the next write finds its files still there.
    """
    if not _is_due(table, written):
        return None
    from lakehouse.engine.compaction import compact

    try:
        outcome = compact(lake, session, table, owner=f"run {context.run_id}")
    except (Transient, Refused) as error:
        context.log.warning(f"{table.key} was written, and not compacted: {type(error).__name__}: {error}")
        return None
    except Exception as error:
        return error
    _tell(context, table, outcome)
    return None


def _is_due(table: Table, written: WriteOutcome) -> bool:
    """A run that wrote nothing tries, too: the one before may have ended between its write and its compaction."""
    if written.strategy is None or not isinstance(written.strategy.strategy, AfterWrite) or written.version_after is None:
        return False
    policy = policy_for(table.layer, table.compaction)
    return policy.mode == "automatic" and is_open(policy.windows, now_ms())


def _tell(context: dg.AssetExecutionContext, table: Table, outcome: CompactionOutcome) -> None:
    context.log.info(f"{table.key} after its write: {outcome.plan.sentence}")
    if outcome.version_after is not None:
        context.log_event(dg.AssetMaterialization(compaction_key(table), metadata=compaction_metadata(outcome)))
