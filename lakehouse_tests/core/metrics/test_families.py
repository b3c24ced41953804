"""The names that rules and dashboard use, and the values that are made of facts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.costs.predicted_and_actual import Figure
from lakehouse.core.metrics.facts import DagsterRecords, MeasuredLake, MeasuredTable
from lakehouse.core.metrics.families import (
    COST,
    DECISIONS,
    DURATION,
    METRICS,
    OPERATIONS,
    PREDICTION_ERROR,
    samples_of,
)
from lakehouse.core.metrics.totals import TableTotals, decode_totals, encode_totals
from lakehouse_tests.test_docs import is_command

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "observability"
NAMES = {each.name for each in METRICS} | {
    f"{each.name}_{part}" for each in METRICS if each.kind == "summary" for part in ("sum", "count")
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_name_in_rules_and_dashboard_is_a_metric() -> None:
    dashboard = json.loads((FOLDER / "grafana.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    queries += [each["query"] for each in dashboard["templating"]["list"]]
    queries += [rule["expr"] for rule in rules()]
    named = {name for query in queries for name in re.findall(r"lakehouse_\w+", query)}
    assert len(queries) > 30 and named - NAMES == set()
    labels = {"table", "layer", "instance"} | {label for each in METRICS for label in each.labels}
    used = {name for query in queries for name in re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)}
    assert used - labels == {"job"}


def test_metrics_that_were_never_read_are_stale_too() -> None:
    """The server answers then, but without any value, so that no other rule fires."""
    [rule] = [rule for rule in rules() if rule["alert"] == "LakehouseMetricsStale"]
    read_ms = "lakehouse_metrics_read_timestamp_seconds"
    assert rule["expr"] == (
        f"time() - {read_ms} > 1800 "
        f'or up{{job="lakehouse"}} == 1 unless on (job, instance) {read_ms}'
    )


def test_every_rule_says_what_is_wrong_and_what_to_type() -> None:
    assert {rule["labels"]["severity"] for rule in rules()} == {"critical", "warning", "info"}
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "runbook"}, rule["alert"]
        text = rule["annotations"]["runbook"].replace("{{ $labels.table }}", "bronze/orders")
        commands = re.findall(r"`(lakehouse [^`]+)`", text)
        assert [command for command in commands if not is_command(command)] == []


def test_a_table_without_facts_has_only_what_is_known_of_it() -> None:
    lake = MeasuredLake(
        tables=(
            MeasuredTable(table="gold/new", is_readable=True),
            MeasuredTable(table="gold/ill", is_readable=False, budget_usd_per_month=2.5),
            MeasuredTable(table="gold/read", is_readable=True, exists=True, is_paused=False),
        ),
        version="1",
        read_ms=1_500,
        seconds=0.25,
        dagster=DagsterRecords(size_bytes=7, checks={("vacuum/gold/ill", "deleted"): False}),
        sources={"vacuums": False},
    )
    found = {(each.metric.name, each.labels): each.value for each in samples_of(lake)}
    assert found == {
        ("lakehouse_table_readable", ("gold/ill", "gold")): 0,
        ("lakehouse_table_budget_usd_per_month", ("gold/ill", "gold")): 2.5,
        ("lakehouse_table_readable", ("gold/read", "gold")): 1,
        ("lakehouse_table_paused", ("gold/read", "gold")): 0,
        ("lakehouse_check_passed", ("vacuum/gold/ill", "vacuum", "deleted")): 0,
        ("lakehouse_dagster_records_bytes", ()): 7,
        ("lakehouse_source_readable", ("vacuums",)): 0,
        ("lakehouse_metrics_read_timestamp_seconds", ()): 1.5,
        ("lakehouse_metrics_read_seconds", ()): 0.25,
        ("lakehouse_build_info", ("1",)): 1,
    }


def operation(kind: str, ended_ms: int, **known: Any) -> UpkeepOperation:
    known = {"is_ok": True, **known}
    return UpkeepOperation(
        table="gold/t", kind=kind, operation_id="", ended_ms=ended_ms, why="", **known
    )


PREDICTED = (Figure("files", 3, 4), Figure("usd", None, 1.0))
OPERATIONS_OF_TABLE = (
    operation("ttl", 10, seconds=5.0, usd=1.0, reason="PAST_THE_CUTOFF"),
    operation("compaction", 20, seconds=7.0, usd=2.0, figures=PREDICTED, reason="SMALL_FILES"),
    operation("compaction", 30, seconds=2.0, usd=0.25, reason="SMALL_FILES"),
    operation("compaction", 31, is_ok=False, usd=0.5),
)


def test_operations_are_counted_and_the_newest_prediction_stays() -> None:
    """Expected kinds have zeros, and unknown figures none."""
    table = MeasuredTable(
        table="gold/t",
        is_readable=True,
        exists=True,
        operations=OPERATIONS_OF_TABLE,
        totals=TableTotals(until_ms=11).through(OPERATIONS_OF_TABLE, 40),
    )
    lake = MeasuredLake(tables=(table,), version="1", read_ms=40, seconds=0.0)
    found = {
        (each.metric.name.removeprefix("lakehouse_"), *each.labels[2:]): (each.value, each.count)
        for each in samples_of(lake)
        if each.metric in (OPERATIONS, DURATION, COST, PREDICTION_ERROR, DECISIONS)
    }
    assert found == {
        ("decisions_total", "compaction", "SMALL_FILES"): (2, 0),
        ("operations_total", "compaction", "succeeded"): (2, 0),
        ("operations_total", "compaction", "failed"): (1, 0),
        ("operations_total", "vacuum", "succeeded"): (0, 0),
        ("operations_total", "vacuum", "failed"): (0, 0),
        ("operation_duration_seconds", "compaction"): (9.0, 2),
        ("operation_duration_seconds", "vacuum"): (0, 0),
        ("cost_usd_total", "compaction"): (2.75, 0),
        ("cost_usd_total", "vacuum"): (0, 0),
        ("operation_prediction_error_ratio", "compaction", "files"): (0.25, 0),
    }


def test_totals_of_a_later_version_are_read_without_the_values_that_it_appended() -> None:
    table = TableTotals(until_ms=0).through(OPERATIONS_OF_TABLE, 40)
    document = json.loads(json.dumps(encode_totals({"gold/t": table})))
    for row in document["gold/t"]["totals"]:
        row.append({"a value of": "a later version"})
    assert decode_totals(document) == {"gold/t": table}
    for row in document["gold/t"]["totals"]:
        del row[6:]
    with pytest.raises(ValueError, match="not enough values"):
        decode_totals(document)


def test_totals_are_the_same_wherever_a_day_ends_and_after_their_document() -> None:
    whole = TableTotals(until_ms=0).through(OPERATIONS_OF_TABLE, 40)
    for split in range(41):
        part = TableTotals(until_ms=0).through(OPERATIONS_OF_TABLE, split)
        [kept] = decode_totals(json.loads(json.dumps(encode_totals({"gold/t": part})))).values()
        assert kept == part
        # Logs may have forgotten what is in the totals, or still have it.
        later = [each for each in OPERATIONS_OF_TABLE if each.ended_ms >= split]
        assert kept.through(later, 40) == kept.through(OPERATIONS_OF_TABLE, 40) == whole
