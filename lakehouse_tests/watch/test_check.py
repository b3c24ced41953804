"""The checks of a table, run by Dagster on logs written like stories."""

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from lakehouse.assets.keys import table_key
from lakehouse.assets.metadata import table_metadata
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.reasons import CheckResult
from lakehouse.compact.assess import assess
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.declare.policies import BinPacking, Compaction, ZOrder
from lakehouse.declare.table import Adopted, Table
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import record_operation
from lakehouse.watch.check import check_names, health_check, judge
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.example_assets import latest_orders, orders
from lakehouse_tests.support.example_histories import failed

pytestmark = pytest.mark.usefixtures("no_java")


@pytest.fixture
def story(dagster_lake: Lake) -> LogBuilder:
    return LogBuilder(dagster_lake.store, orders.key).create(
        columns={"id": "string", "amount": "long"}
    )


def results(lake: Lake) -> dict[str, CheckResult]:
    return {result.name: result for result in judge(orders, lake)}


def verdicts(lake: Lake) -> dict[str, bool]:
    return {name: result.ok for name, result in results(lake).items()}


def small_files(count: int) -> list[tuple[str, int, int | None]]:
    return [(f"f{number}", 100, 1) for number in range(count)]


def test_a_table_has_its_checks_and_a_derived_one_no_quarantine(dagster_lake: Lake) -> None:
    of_all = ("readable", "small_files", "log_debt", "breaker", "declaration")
    assert check_names(orders, dagster_lake) == (*of_all, "quarantine")
    assert check_names(latest_orders, dagster_lake) == of_all
    others = Table(key="bronze/orders", write=Adopted(uri="/elsewhere/orders"))
    assert check_names(others, dagster_lake) == of_all[:-1]


def test_a_sound_table_passes_all(dagster_lake: Lake, story: LogBuilder) -> None:
    story.append(small_files(3)).store_data()
    assert verdicts(dagster_lake) == dict.fromkeys(check_names(orders, dagster_lake), True)


def test_a_changed_declaration_names_its_command(dagster_lake: Lake, story: LogBuilder) -> None:
    """A safe change passes: the next write applies it."""
    story.append(small_files(3)).store_data()
    [wider, renamed] = (
        replace(orders, source=replace(orders.landing, schema=schema, required=()), renamed=names)
        for schema, names in (
            ("id STRING, amount DECIMAL(20,2), note STRING", {}),
            ("id STRING, cents BIGINT", {"amount": "cents"}),
        )
    )

    def checked(table: Table) -> CheckResult:
        return next(each for each in judge(table, dagster_lake) if each.name == "declaration")

    refused = checked(wider)
    assert (refused.ok, refused.is_error, refused.numbers) == (False, True, {"changes": 2})
    assert "amount is declared as decimal(20,2), but is bigint in the table" in refused.sentence
    assert refused.sentence.endswith("then `lakehouse evolve bronze/orders`")
    assert "amount is renamed to cents in the declaration" in checked(renamed).sentence
    added = replace(
        orders, source=replace(orders.landing, schema="id STRING, amount BIGINT, x INT")
    )
    assert checked(added).ok
    assert checked(added).sentence == "x (int) is declared, but not in the table"
    fewer = replace(orders, source=replace(orders.landing, schema="id STRING"))
    assert checked(fewer).ok


def test_a_table_that_does_not_exist_yet_passes_and_says_so(dagster_lake: Lake) -> None:
    assert {result.sentence for result in judge(orders, dagster_lake)} == {"there is no table yet"}
    assert all(verdicts(dagster_lake).values())


@pytest.mark.parametrize(("count", "passes"), [(4, True), (7, True), (8, False)])
def test_small_files_pass_until_twice_the_threshold_of_a_compaction(
    dagster_lake: Lake, story: LogBuilder, count: int, passes: bool
) -> None:
    story.append(small_files(count)).store_data()
    found = results(dagster_lake)["small_files"]
    assert (found.ok, found.numbers) == (passes, {"mergeable_files": count})
    plan = assess(dagster_lake, orders, story.facts()).health.plan
    said = f"; {count} mergeable files, a compaction is due at 4, the check fails at 8"
    assert found.sentence == plan.sentence + said


def test_a_missing_file_is_an_error_that_names_it(dagster_lake: Lake, story: LogBuilder) -> None:
    story.append(small_files(3)).store_data()
    dagster_lake.store.delete(["bronze/orders/f1"])
    readable = judge(orders, dagster_lake)[0]
    assert (readable.ok, readable.is_error) == (False, True)
    assert readable.sentence == "storage lacks 1 file of version 1: f1"


def test_an_archived_file_is_named_with_the_commands_to_type(
    dagster_lake: Lake, story: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.append(small_files(3)).store_data()
    found, listed = judge(orders, dagster_lake), dagster_lake.store.list
    assert found[0].ok
    monkeypatch.setattr(
        dagster_lake.store,
        "list",
        lambda prefix: [
            replace(file, storage_class="GLACIER" if file.name.endswith("/f1") else "STANDARD")
            for file in listed(prefix)
        ],
    )
    readable = judge(orders, dagster_lake)[0]
    assert (readable.ok, readable.is_error) == (False, True)
    assert readable.sentence.startswith("version 1 has 1 archived file: f1; no scan and no")
    assert "aws s3api restore-object --bucket" in readable.sentence
    assert "/f1 --storage-class STANDARD --force-glacier-transfer" in readable.sentence


def test_an_unreadable_log_fails_every_check(dagster_lake: Lake, story: LogBuilder) -> None:
    story.append(small_files(3)).append([("g", 1)]).append([("h", 1)]).lose(2)
    found = judge(orders, dagster_lake)
    assert [result.ok for result in found] == [False] * 6
    assert len({result.sentence for result in found}) == 1


def test_an_open_breaker_is_a_warning_with_numbers(dagster_lake: Lake, story: LogBuilder) -> None:
    story.append(small_files(2)).store_data()
    for minutes in (3, 2, 1):
        assert results(dagster_lake)["breaker"].ok
        ended_ms = now_ms() - minutes * 60_000
        record_operation(
            dagster_lake, failed(ended_ms, table=orders.key, why="f1 is not a Parquet file")
        )
    found = results(dagster_lake)["breaker"]
    assert (found.ok, found.is_error) == (False, False)
    assert "3 compactions in a row failed" in found.sentence and found.sentence.endswith(
        "last error: f1 is not a Parquet file"
    )
    assert found.numbers["retry_at_ms"] == ended_ms + 6 * 3_600_000


CLUSTERED = {
    "domain": "delta.clustering",
    "configuration": '{"clusteringColumns": [["id"]]}',
    "removed": False,
}


@pytest.mark.parametrize(
    ("features", "data_layout", "why"),
    [
        (
            ("domainMetadata", "clustering"),
            BinPacking(),
            "the table is clustered by id, which BinPacking cannot plan",
        ),
        (
            (),
            ZOrder(columns=("amount",)),
            "ZOrder.columns holds 'amount', which is a partition column or not a column of the table",
        ),
    ],
)
def test_a_plan_that_is_refused_is_told_and_stops_neither_a_write_nor_the_checks(
    dagster_lake: Lake, features: tuple[str, ...], data_layout: Any, why: str
) -> None:
    table = replace(orders, compaction=Compaction(min_small_files=4, data_layout=data_layout))
    story = LogBuilder(dagster_lake.store, orders.key).create(
        features=features, columns={"id": "string"}
    )
    if features:
        story.commit("CLUSTER BY", {"domainMetadata": CLUSTERED})
    story.append(small_files(9)).store_data()
    facts = story.facts()
    metadata = table_metadata(table, assess(dagster_lake, table, facts))
    assert (metadata["lakehouse/file_count"], metadata["lakehouse/mergeable_file_count"]) == (9, 0)
    assert metadata["lakehouse/plan"].startswith(
        f"nothing can be planned: plan of bronze/orders: {why}"
    )
    found = {result.name: result for result in judge(table, dagster_lake)}
    assert [name for name, result in found.items() if not result.ok] == ["small_files"]
    assert why in found["small_files"].sentence and not found["small_files"].is_error
    with pytest.raises(Refused, match=why):
        plan_table(table, facts.snapshot, facts.history, now_ms=now_ms())


def test_quarantined_lines_are_counted(dagster_lake: Lake, story: LogBuilder) -> None:
    story.append(small_files(1)).store_data()
    LogBuilder(dagster_lake.store, "quarantine/bronze/orders").create().append([("q", 10, 3)])
    result = judge(orders, dagster_lake)[-1]
    assert (result.name, result.ok, result.is_error) == ("quarantine", False, False)
    assert result.sentence == (
        "3 refused lines in quarantine/bronze/orders, each with its file, line number, reason and text. "
        "Use lakehouse quarantine show bronze/orders, then retry or drop"
    )


def test_the_checks_run_together_or_alone_and_only_an_unreadable_table_is_an_error(
    dagster_lake: Lake, story: LogBuilder, instance: dg.DagsterInstance
) -> None:
    story.append(small_files(8)).store_data()

    def evaluated(selection: dg.AssetSelection) -> dict[str, tuple[bool, dg.AssetCheckSeverity]]:
        checks = health_check(orders, dagster_lake)
        result = dg.materialize([checks], selection=selection, instance=instance)
        evaluations = result.get_asset_check_evaluations()
        return {each.check_name: (each.passed, each.severity) for each in evaluations}

    error, warn = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
    assert evaluated(dg.AssetSelection.all_asset_checks()) == {
        **dict.fromkeys(check_names(orders, dagster_lake), (True, warn)),
        "readable": (True, error),
        "small_files": (False, warn),
    }
    only = dg.AssetSelection.checks(dg.AssetCheckKey(table_key(orders), "log_debt"))
    assert evaluated(only) == {"log_debt": (True, warn)}
