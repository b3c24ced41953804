"""What a compaction that was made has cost and gained: its account, and a probe if one is due."""

from dataclasses import replace

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.declaration.table import Table
from lakehouse.engine.compaction.ledger import with_account
from lakehouse.engine.lake import Lake


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
    from lakehouse.engine.compaction.probe import probe_compaction

    try:
        outcome = with_account(lake, table, outcome)
        return replace(outcome, probe=probe_compaction(lake, spark.spark_session, outcome, asked=asked))
    except Exception as error:
        context.log.warning(f"{outcome.plan.table} was compacted; what that gained could not be told: {type(error).__name__}: {error}")
        return outcome
