"""The names that rules and dashboard use, and the values that are made of facts."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from lakehouse.base.operation import UpkeepOperation
from lakehouse.watch.metrics import run
from lakehouse.watch.metrics.run import Metric, Metrics, _add_operations
from lakehouse_tests.support.example_assets import latest_orders
from lakehouse_tests.support.terminal import is_command

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "observability"
METRICS = [each for each in vars(run).values() if isinstance(each, Metric)]
NAMES = {each.name for each in METRICS}
LABELS = {label for each in METRICS for label in each.labels}


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
    used = {name for query in queries for name in re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query)}
    assert used - LABELS == {"job"}


def test_every_rule_says_what_is_wrong_and_what_to_type() -> None:
    assert {rule["labels"]["severity"] for rule in rules()} == {"critical", "warning", "info"}
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "runbook"}, rule["alert"]
        text = rule["annotations"]["runbook"].replace("{{ $labels.table }}", "bronze/orders")
        commands = re.findall(r"`(lakehouse [^`]+)`", text)
        assert [command for command in commands if not is_command(command)] == []


def operation(kind: str, number: int, **known: Any) -> UpkeepOperation:
    return UpkeepOperation(
        table="silver/t", kind=kind, operation_id=str(number), ended_ms=number, **known
    )


OPERATIONS_OF_TABLE = (
    operation("ttl", 10, seconds=5.0, usd=1.0, reason="PAST_THE_CUTOFF"),
    operation("compaction", 20, seconds=7.0, usd=2.0, reason="SMALL_FILES"),
    operation("compaction", 30, seconds=2.0, usd=0.25, reason="SMALL_FILES"),
    operation("compaction", 31, result="failed", usd=0.5),
)


def counted(operations: tuple[UpkeepOperation, ...]) -> dict[tuple[str, ...], float]:
    """The values by the metric's name and the labels after the table's."""
    metrics = Metrics()
    _add_operations(metrics, replace(latest_orders, key="silver/t"), operations, 11)
    return {
        (each.name.removeprefix("lakehouse_"), *list(each.labels.values())[2:]): each.value
        for family in metrics.collect()
        for each in family.samples
    }


def test_operations_since_the_start_are_counted_once() -> None:
    """Expected kinds have zeros."""
    expected = {
        ("decisions_total", "compaction", "SMALL_FILES"): 2,
        ("operations_total", "compaction", "succeeded"): 2,
        ("operations_total", "compaction", "failed"): 1,
        ("operations_total", "vacuum", "succeeded"): 0,
        ("operations_total", "vacuum", "failed"): 0,
        ("cost_usd_total", "compaction"): 2.75,
        ("cost_usd_total", "vacuum"): 0,
    }
    assert counted(OPERATIONS_OF_TABLE) == expected
    # An operation that is seen late is added.
    late = operation("vacuum", 12, usd=0.25)
    assert counted((*OPERATIONS_OF_TABLE, late)) == expected | {
        ("operations_total", "vacuum", "succeeded"): 1,
        ("cost_usd_total", "vacuum"): 0.25,
    }
