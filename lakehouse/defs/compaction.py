"""One compaction asset per table, and the one sensor that decides which of them run.

A compaction is an asset of its own: it changes no row, and a materialization of the table would say that it did and
set off everything downstream. On the table's own key it leaves an observation with the new counts, and fresh checks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import dagster as dg
from dagster import DagsterRunStatus
from dagster_pyspark import LazyPySparkResource

from lakehouse.core.benefit import PROBE_TAG, Probe
from lakehouse.core.errors import LakehouseError
from lakehouse.core.outcome import CompactionOutcome
from lakehouse.core.policy import policy_for
from lakehouse.core.rank import Decision, RunState, TableState, Try, choose_compactions, describe
from lakehouse.core.table import Table
from lakehouse.defs.failures import dagster_words
from lakehouse.defs.health import report_checks
from lakehouse.defs.instance import earlier_tries, newest_facts, runs_in_flight
from lakehouse.defs.keys import compaction_key, pool_of, table_key
from lakehouse.defs.medallion import tag_session
from lakehouse.defs.metadata import compaction_metadata, table_metadata
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import session_id

# Two runs go at once on a small machine (dagster.yaml): one of them stays with the writers.
_SLOTS = 1
_TABLE_TAG, _VERSION_TAG, _MERGEABLE_TAG = "lakehouse/table", "lakehouse/version", "lakehouse/mergeable_files"


def compaction_asset(table: Table, lake: Lake) -> dg.AssetsDefinition:
    """The compaction of a table: a fresh plan under the table's guard, the merge, and the account of both."""

    @dg.asset(
        key=compaction_key(table),
        deps=[table_key(table)],
        group_name="compaction",
        kinds={"deltalake", "pyspark"},
        pool=pool_of(table),
        description=f"Merges the small files of {table.key}. Changes no row, so nothing downstream follows.",
    )
    def compaction(context: dg.AssetExecutionContext, spark: LazyPySparkResource) -> Iterator[dg.MaterializeResult[Any]]:
        from lakehouse.engine.compaction import compact

        with dagster_words(context):
            session = spark.spark_session
            tag_session(context, session_id(session))
            outcome = compact(lake, session, table, owner=f"run {context.run_id}")
        report_table(context, table, lake)
        outcome = replace(outcome, probe=_probe(context, lake, session, outcome))
        context.log.info(f"{table.key}: {outcome.plan.sentence}")
        yield dg.MaterializeResult(metadata=compaction_metadata(outcome))

    return compaction


def _probe(context: dg.AssetExecutionContext, lake: Lake, session: Any, outcome: CompactionOutcome) -> Probe | None:
    """The probe of a compaction that is due for one; whatever goes wrong in it, the compaction is done and its account is told."""
    from lakehouse.engine.probe import probe_compaction

    try:
        return probe_compaction(lake, session, outcome, asked=PROBE_TAG in context.run.tags)
    except Exception as error:
        context.log.warning(f"{outcome.plan.table} was compacted; what that gained could not be measured: {type(error).__name__}: {error}")
        return None


def report_table(context: dg.AssetExecutionContext, table: Table, lake: Lake) -> None:
    """The table as the compaction left it: an observation and the checks. What is in their way is told, and fails nothing.

    A failure would have Dagster try again, and the next compaction, with nothing left to do, would take the place of this one's account.
    """
    try:
        facts = lake.facts(table.key)
        if facts is not None:
            context.log_event(dg.AssetObservation(table_key(table), metadata=table_metadata(table, facts)))
        report_checks(context, table, lake)
    except LakehouseError as error:
        context.log.warning(f"{table.key} was compacted; what it is like now could not be told: {type(error).__name__}: {error}")


def compaction_sensor(tables: Sequence[Table]) -> dg.SensorDefinition:
    """Requests the compactions that are due, and says of every table, with numbers, why or why not.

    It reads the newest event of each table and the runs about it, and nothing else: no storage, no Spark.
    """

    @dg.sensor(
        name="compaction_sensor",
        target=dg.AssetSelection.assets(*(compaction_key(table) for table in tables)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=10,
        description="Compacts a table when enough of its files would really be merged.",
    )
    def weigh(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        states = {table.key: _state(context.instance, table) for table in tables}
        decisions = _weigh(context.instance, tables, states)
        text = describe(decisions)
        requests = [_request(decision, states[decision.table]) for decision in decisions if decision.request]
        if not requests:
            return dg.SensorResult(skip_reason=text)
        context.log.info(text)
        return dg.SensorResult(run_requests=requests)

    return weigh


def _state(instance: dg.DagsterInstance, table: Table) -> TableState:
    facts = newest_facts(instance, table)
    if facts is None:
        return TableState(table=table.key)
    return TableState(
        table=table.key, version=facts.whole("lakehouse/version"), mergeable_file_count=facts.whole("lakehouse/mergeable_file_count")
    )


def _weigh(instance: dg.DagsterInstance, tables: Sequence[Table], states: Mapping[str, TableState]) -> tuple[Decision, ...]:
    policies = {table.key: policy_for(table.layer, table.compaction) for table in tables}
    tries = tuple(past for state in states.values() for past in _tries(instance, state))
    runs = RunState(in_flight=runs_in_flight(instance, tables), tries=tries)
    return choose_compactions(states.values(), policies, runs, slots=_SLOTS)


def _tries(instance: dg.DagsterInstance, state: TableState) -> list[Try]:
    """The ended runs that were asked for this very state; a table with nothing to merge is not looked up."""
    if state.version is None or not state.mergeable_file_count:
        return []
    ended = earlier_tries(instance, _tags(state))
    return [Try(table=state.table, version=state.version, result=_result(record.dagster_run.status)) for record in ended]


def _result(status: DagsterRunStatus) -> Literal["succeeded", "failed"]:
    return "succeeded" if status is DagsterRunStatus.SUCCESS else "failed"


def _request(decision: Decision, state: TableState) -> dg.RunRequest:
    key = dg.AssetKey(["compaction", *decision.table.split("/")])
    return dg.RunRequest(
        run_key=decision.run_key, asset_selection=[key], tags={**_tags(state), _MERGEABLE_TAG: str(state.mergeable_file_count)}
    )


def _tags(state: TableState) -> dict[str, str]:
    return {_TABLE_TAG: state.table, _VERSION_TAG: str(state.version)}
