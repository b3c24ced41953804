"""The compaction that a table's own run makes after its write, where the table's strategy says so.

1. The rows are committed before this begins, and stay whatever happens here.
2. The table's guard is taken anew, while the run still holds the table's pool: nobody else's run comes between.
3. What the compaction did is recorded under its own asset, as if it had been a run of its own.
"""

from dataclasses import replace

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.declaration.strategies import AfterWrite
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.errors import Refused, Transient
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.defs.keys import compaction_key
from lakehouse.defs.metadata.table import compaction_metadata
from lakehouse.engine.compaction.cost_ledger import with_account
from lakehouse.engine.compaction.hold_back import hold_back_now
from lakehouse.engine.lake import Lake


def compact_after_write(
    context: dg.AssetExecutionContext, table: Table, lake: Lake, spark: LazyPySparkResource, written: WriteOutcome
) -> tuple[TableFacts | None, Exception | None]:
    """Compacts where the strategy says so and the plan finds something; the table after it, and an error to be raised once all is told.

    A compaction that could not be made now is told and no more: the next write finds its files still there.
    """
    from lakehouse.engine.compaction.run import compact

    # A run that wrote nothing tries, too: the one before may have ended between its write and its compaction.
    if written.strategy is None or not isinstance(written.strategy.strategy, AfterWrite) or written.facts is None:
        return written.facts, None
    try:
        held = hold_back_now(lake, table, written.facts.history)
        if held is not None:
            context.log.info(f"{table.key} was written, and is not compacted: {held.sentence}")
            return written.facts, None
        outcome = compact(lake, spark.spark_session, table, owner=f"run {context.run.run_id}")
    except (Transient, Refused) as error:
        context.log.warning(f"{table.key} was written, and not compacted: {type(error).__name__}: {error}")
        return written.facts, None
    except Exception as error:
        return lake.facts(table.key), error  # the compaction may have been undone
    context.log.info(f"{table.key} after its write: {outcome.plan.sentence}")
    if outcome.version_after is not None:
        outcome = measured(context, lake, table, spark, outcome)
        context.log_event(dg.AssetMaterialization(compaction_key(table), metadata=compaction_metadata(outcome)))
    return outcome.facts, None


def measured(
    context: dg.AssetExecutionContext,
    lake: Lake,
    table: Table,
    spark: LazyPySparkResource,
    outcome: CompactionOutcome,
    *,
    asked: bool = False,
) -> CompactionOutcome:
    """The outcome with the table's account and the probe; whatever is in their way, the compaction is done and is told."""
    from lakehouse.engine.compaction.read_probe import probe_compaction

    try:
        outcome = with_account(lake, table, outcome)
        return replace(outcome, probe=probe_compaction(lake, spark.spark_session, outcome, asked=asked))
    except Exception as error:
        context.log.warning(f"{outcome.plan.table} was compacted; what that gained could not be told: {type(error).__name__}: {error}")
        return outcome
