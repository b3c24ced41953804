"""Derived tables follow rows, and nothing else."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterEventType

from lakehouse.assets.keys import pool_of, table_key
from lakehouse.assets.metadata import data_version
from lakehouse.assets.resources import spark_resource
from lakehouse.base.reasons import Reason
from lakehouse.compact.asset import compaction_asset
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commit, Commits
from lakehouse.lake.lake import Lake
from lakehouse.land.asset import landing_assets
from lakehouse.materialize.asset import code_tags, table_asset
from lakehouse.write.outcome import WriteOutcome
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.dagster_events import (
    begun,
    ended,
    materialized,
    materialized_by,
    observed,
)
from lakehouse_tests.support.example_assets import TABLES, latest_orders, orders, totals


@pytest.fixture
def definitions(dagster_lake: Lake) -> dg.Definitions:
    assets = [
        *landing_assets(TABLES, dagster_lake),
        *(table_asset(table, dagster_lake) for table in TABLES),
    ]
    return dg.Definitions(assets=assets, resources={"spark": spark_resource(dagster_lake.settings)})


class Automation:
    """The automation sensor's evaluations, one after the other."""

    def __init__(self, definitions: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self.definitions = definitions
        self.instance = instance
        self.cursor = None
        self.ahead = timedelta()
        self.tick()

    def tick(self) -> set[str]:
        """The tables that this evaluation asks for."""
        now = datetime.now(UTC) + self.ahead
        result = dg.evaluate_automation_conditions(
            self.definitions, self.instance, cursor=self.cursor, evaluation_time=now
        )
        self.cursor = result.cursor
        return {key.to_user_string() for key in table_keys() if result.get_num_requested(key)}

    def later(self, *, minutes: int) -> None:
        """The evaluations after this are so much later."""
        self.ahead += timedelta(minutes=minutes)


def table_keys() -> list[dg.AssetKey]:
    return [table_key(table) for table in (latest_orders, totals)]


@pytest.fixture
def automation(definitions: dg.Definitions, instance: dg.DagsterInstance) -> Automation:
    """Evaluations of tables that were all materialized."""
    for place, table in enumerate((orders, latest_orders, totals)):
        materialized(instance, table, data_version=f"{place}")
    return Automation(definitions, instance)


def succeeded(instance: dg.DagsterInstance, run: dg.DagsterRun, data_version: str) -> None:
    """The run made both of them."""
    for table in (latest_orders, totals):
        materialized_by(instance, run, table, data_version=data_version)
    ended(instance, run, DagsterEventType.RUN_SUCCESS)


def test_new_rows_set_off_downstream_and_idle_runs_nothing(
    automation: Automation, instance: dg.DagsterInstance
) -> None:
    materialized(instance, orders, data_version="0")
    assert automation.tick() == set()
    materialized(instance, orders, data_version="1")
    assert "silver/orders" in automation.tick()
    assert automation.tick() == set()


def test_a_compaction_sets_off_nothing(
    automation: Automation, instance: dg.DagsterInstance
) -> None:
    for table in (orders, latest_orders):
        observed(instance, table, file_count=1)
    assert automation.tick() == set()
    materialized(instance, orders, data_version="0")
    assert automation.tick() == set()


def test_rows_written_while_nobody_looked_are_not_lost_behind_an_unchanged_run(
    automation: Automation, instance: dg.DagsterInstance
) -> None:
    materialized(instance, orders, data_version="1")
    materialized(instance, orders, data_version="1")
    assert "silver/orders" in automation.tick()


@pytest.mark.parametrize(
    "when",
    ["in the tick after the request", "while the follower runs", "after it, before the next tick"],
)
def test_rows_that_come_while_a_follower_is_asked_for_or_runs_set_it_off_once_more(
    automation: Automation, instance: dg.DagsterInstance, when: str
) -> None:
    both = {"silver/orders", "gold/totals"}

    def lands(now: str) -> None:
        if now == when:
            materialized(instance, orders, data_version="new")

    materialized(instance, orders, data_version="5")
    assert automation.tick() == both
    run = begun(instance, *table_keys())
    lands("in the tick after the request")
    assert automation.tick() == set()
    lands("while the follower runs")
    assert automation.tick() == set()
    succeeded(instance, run, "6")
    lands("after it, before the next tick")
    asked = [automation.tick() for _ in range(3)]
    assert sorted(map(len, asked)) == [0, 0, 2] and both in asked

    run = begun(instance, *table_keys())
    automation.tick()
    succeeded(instance, run, "7")
    assert [automation.tick() for _ in range(4)] == [set()] * 4


def test_a_follower_whose_run_failed_is_asked_for_again_after_a_while(
    automation: Automation, instance: dg.DagsterInstance
) -> None:
    materialized(instance, orders, data_version="5")
    assert "silver/orders" in automation.tick()
    run = begun(instance, *table_keys())
    automation.tick()
    ended(instance, run, DagsterEventType.RUN_FAILURE)
    assert [automation.tick() for _ in range(2)] == [set(), set()]
    automation.later(minutes=31)
    assert "silver/orders" in automation.tick()
    assert automation.tick() == set()


def test_a_compaction_leaves_the_data_version_as_it_is() -> None:
    story = LogBuilder().create().append([("a", 1), ("b", 1)])
    before = data_version(story.facts())
    assert before.startswith("1@")
    assert data_version(story.optimize(["a", "b"], into=("c", 2)).facts()) == before
    assert data_version(story.append([("d", 1)]).facts()).startswith("3@")


def test_a_table_that_was_made_anew_by_as_many_commits_has_another_data_version() -> None:
    facts = LogBuilder().create().append([("a", 1)]).facts()
    later = tuple(
        replace(commit, committed_ms=commit.committed_ms + 60_000)
        for commit in facts.history.commits
    )
    assert data_version(facts) != data_version(
        replace(facts, history=replace(facts.history, commits=later))
    )


@pytest.mark.parametrize("table", TABLES)
def test_a_table_and_its_compaction_share_one_pool(dagster_lake: Lake, table: Table) -> None:
    made = (table_asset(table, dagster_lake), compaction_asset(table, dagster_lake))
    assert [each.op.pool for each in made] == [pool_of(table)] * 2
    assert len({pool_of(each) for each in TABLES}) == len(TABLES)


@pytest.mark.parametrize(("table", "hours"), [(orders, 2), (totals, None)])
def test_freshness_is_what_the_declaration_says(
    definitions: dg.Definitions, table: Table, hours: int | None
) -> None:
    policy = (
        definitions.resolve_asset_graph().get(table_key(table)).freshness_policy_or_from_metadata
    )
    assert (policy.fail_window.to_timedelta().total_seconds() / 3600 if policy else None) == hours


def test_commits_that_change_no_row_do_not_change_the_data_version_however_many_they_are() -> None:
    facts = LogBuilder().create().append([("a", 1)]).facts()
    optimized = Commit(version=9, committed_ms=0, operation="OPTIMIZE", changed_data=False)

    def after(*versions: int) -> str:
        commits = tuple(replace(optimized, version=version) for version in versions)
        return data_version(replace(facts, history=Commits(table="bronze/t", commits=commits)))

    assert after(9) == after(9, 10) == after(10, 11) == facts.snapshot.table_id != ""


def test_changed_code_sets_off_no_run_by_itself(
    automation: Automation,
    definitions: dg.Definitions,
    instance: dg.DagsterInstance,
    dagster_lake: Lake,
) -> None:
    def least(orders: Any) -> Any:
        return orders.select("id")

    before = definitions.resolve_asset_graph().get(table_key(latest_orders)).code_version
    assert before is not None and before == latest_orders.transform_code
    changed: list[Any] = [*landing_assets(TABLES, dagster_lake)]
    for table in TABLES:
        transform = None if table.transform is None else least
        changed.append(table_asset(replace(table, transform=transform), dagster_lake))
    automation.definitions = dg.Definitions(
        assets=changed, resources={"spark": spark_resource(dagster_lake.settings)}
    )
    graph = automation.definitions.resolve_asset_graph()
    assert graph.get(table_key(latest_orders)).code_version not in (None, before)
    assert graph.get(table_key(orders)).code_version is None
    assert [automation.tick() for _ in range(3)] == [set()] * 3
    materialized(instance, orders, data_version="7")
    assert "silver/orders" in automation.tick()


def test_a_run_that_leaves_rows_of_earlier_code_does_not_record_the_present_code() -> None:
    outcome = WriteOutcome(
        table="silver/orders", explanation=Reason.INPUTS_UNCHANGED.explain(versions="")
    )
    assert code_tags(outcome) == {}
    expected = {"dagster/code_version": "other code up to version 0"}
    assert code_tags(replace(outcome, code_changed_since=0)) == expected
