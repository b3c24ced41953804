"""One asset per table: what it is made from, what it is called, and the write itself."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.ingest.batches import SetAside
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.text import printable
from lakehouse.defs.failures import dagster_words
from lakehouse.defs.health import hand_on
from lakehouse.defs.keys import handed_over_tag, landing_key, pool_of, table_key
from lakehouse.defs.metadata.table import declared_metadata, table_metadata, write_metadata
from lakehouse.defs.run_ownership import machine_tag, process_tag
from lakehouse.defs.upkeep.after_write import compact_after_write
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.sessions import session_id
from lakehouse.engine.table_health import assess

_NAMED = 100


def table_asset(table: Table, lake: Lake) -> dg.AssetsDefinition:
    """The asset of a table: a run of it loads what has landed, or what is new in its inputs.

    Where its strategy says so, the run then compacts the table. A run that changes no row is still recorded, under the
    data version it had before, so that nothing downstream follows it. A run that finds no table, since nothing has
    landed yet, records nothing.
    """
    hours = table.fresh_within_hours

    @dg.asset(
        key=table_key(table),
        deps=[landing_key(table.source)] if table.source else [table_key(source) for source in table.inputs],
        group_name=table.layer,
        kinds={"deltalake", "pyspark", table.layer},
        pool=pool_of(table),
        description=table.description or None,
        freshness_policy=None if hours is None else dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=hours)),
        automation_condition=follows_rows() if table.inputs else None,
        metadata=declared_metadata(table, lake),
        output_required=False,
    )
    def write(context: dg.AssetExecutionContext, spark: LazyPySparkResource) -> Iterator[dg.MaterializeResult[Any]]:
        from lakehouse.engine.ingest.write import write_table

        with dagster_words(context):
            session = spark.spark_session
            tag_session(context, session_id(session))
            handed = context.run.tags.get(handed_over_tag(table), "")
            batch = int(handed) if handed.isdecimal() else None
            outcome = write_table(lake, session, table, tell=context.log.info, handed_batch=batch)
            facts, problem = compact_after_write(context, table, lake, spark, outcome)
        _tell(context, table, outcome)
        if facts is not None:
            assessed = assess(lake, table, facts)
            hand_on(context.run.run_id, table, assessed)
            metadata = {**table_metadata(table, assessed), **write_metadata(outcome)}
            yield dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(data_version(facts)))
        if problem is not None:
            with dagster_words(context):
                raise problem

    return write


def follows_rows() -> dg.AutomationCondition[dg.AssetKey | dg.AssetCheckKey]:
    """Eager, but deaf to an input that ran without a change in its rows."""
    changed = (
        dg.AutomationCondition.newly_updated()
        & dg.AutomationCondition.data_version_changed()
        & ~dg.AutomationCondition.executed_with_root_target()
    )
    any_rows_changed = dg.AutomationCondition.any_deps_match(changed | dg.AutomationCondition.will_be_requested())
    return dg.AutomationCondition.eager().replace("any_deps_updated", any_rows_changed).with_label("follows_rows")


def data_version(facts: TableFacts) -> str:
    """The last version of the table that changed a row; a compaction leaves it as it is.

    Where the log no longer holds a commit that did, the oldest commit still known stands for it.
    """
    commits = facts.history.commits
    changes = [commit.version for commit in commits if commit.changed_data]
    return str(changes[-1] if changes else commits[0].version if commits else facts.snapshot.version)


def tag_session(context: dg.AssetExecutionContext, session: str) -> None:
    """Writes process and Spark session into the run's tags: what carries the run, and what to look for on the server."""
    context.instance.add_run_tags(context.run.run_id, {**process_tag(context.run.run_id), machine_tag("session"): session})


def set_aside_text(table: Table, files: Sequence[SetAside]) -> str:
    """The landed files that were not read, by name and with the reason: all, or the first of very many."""
    named = [printable(f"{aside.name} ({aside.size_bytes} bytes): {aside.why}") for aside in files[:_NAMED]]
    more = [f"and {len(files) - _NAMED} more; the manifests below _lakehouse/ingest/{table.key} name all"] if len(files) > _NAMED else []
    return "\n".join([f"{table.key}: {len(files)} landed file(s) were set aside", *named, *more])


def _tell(context: dg.AssetExecutionContext, table: Table, outcome: WriteOutcome) -> None:
    context.log.info(f"{table.key}: {outcome.sentence}")
    if outcome.set_aside:
        context.log.warning(set_aside_text(table, outcome.set_aside))
    if outcome.properties_left:
        left = ", ".join(f"{name}={value}" for name, value in sorted(outcome.properties_left.items()))
        context.log.warning(f"{table.key}: its strategy would set it otherwise, but a person set {left}, which stays")
