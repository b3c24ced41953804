"""`lakehouse plan` and `compact --dry-run`."""

from typing import Any

import pytest

from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse_tests.log_builder import START_MS
from lakehouse_tests.support.example_terminal import latest_orders
from lakehouse_tests.support.terminal import Terminal, type_of_story

FOUND: dict[str, Any] = {
    "table": "bronze/orders",
    "version": 2,
    "reason": "MERGEABLE_FILES",
    "sentence": "3 files (303 B) merge into 1",
    "engine": "spark",
    "why_not_deltalake": "",
    "statement": "packing",
    "target_file_bytes": 4096,
    "files_removed": 3,
    "files_added": 1,
    "bytes_removed": 303,
    "files_left": 0,
    "verify": "rows",
    "verify_sentence": "this process compares row counts and column statistics in the log",
    "bins": [["d=1/small-0", "d=1/small-1", "d=1/small-2"]],
}


def test_a_dry_run_is_the_plan_with_its_files_and_nothing_is_written(told: Terminal) -> None:
    before = sorted(told.home.rglob("*"))
    plan = told.json("compact", "bronze/orders", "--dry-run")
    estimate = plan.pop("estimate")
    assert plan == FOUND
    assert (estimate["seconds"], estimate["usd"]) == (0.533, 0.000325724)
    assert estimate["source"] == "defaults"
    compared = "this process compares row counts and column statistics in the log"
    lines = told.run("compact", "bronze/orders", "--dry-run").stdout.splitlines()
    assert lines[:3] == [
        "bronze/orders at version 2: 3 files (303 B) merge into 1",
        f"bronze/orders: about 0.5 s and 0.000326 USD, predicted from defaults; {compared}",
        "bronze/orders, d=1: 3 files, 303 B",
    ]
    assert lines[-1].split() == ["102", "B", "d=1/small-2"]
    told.run("health")
    assert sorted(told.home.rglob("*")) == before


def test_what_is_due_is_a_narrow_list_and_every_reason_comes_on_request(told: Terminal) -> None:
    head, rule, *due, count = told.run("plan").stdout.splitlines()
    heads = ["operation", "table", "bytes", "costs", "USD", "pays", "back", "in", "reason"]
    assert head.split() == heads and len(rule) <= 100
    assert [each.split() for each in due] == [
        ["compact", "bronze/orders", "303", "B", "0.000326", "-", "DUE_AGE"],
        ["vacuum", "silver/orders", "300", "B", "-", "-", "VACUUM_DUE"],
    ]
    assert count == "2 operations due, 5 not due"
    for arguments in (["--verbose"], ["bronze/orders", "silver/orders", "gold/totals"]):
        shown = told.run("plan", *arguments).stdout
        assert "limit 24 h); 3 files (303 B) merge into 1" in shown
        assert "no file removed before" in shown
        assert "the table is declared, but does not exist yet" in shown


def test_a_table_that_cannot_be_planned_does_not_hide_the_others(told: Terminal) -> None:
    (told.root / "bronze/orders/_delta_log/00000000000000000001.json").unlink()
    result = told.run("plan", "--verbose")
    assert result.exit_code == 1
    assert "silver/orders" in result.stdout and "nothing to merge: 1 small file" in result.stdout
    assert result.stderr.startswith("Broken: log of bronze/orders")
    reasons = {each["table"]: each["reason"] for each in told.json("plan", exit_code=1)}
    assert reasons["bronze/orders"] == "BROKEN" and reasons["gold/totals"] == "NO_TABLE"


def test_the_fleet_is_ranked_by_what_a_compaction_gives_a_day_over_what_it_costs(
    terminal: Terminal, story: type_of_story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.compact.assess.now_ms", lambda: START_MS + 3_600_000)
    small = [(f"d=1/small-{number}", 100, 10) for number in range(6)]
    story("silver/orders").create(partition_by=["d"]).append(small)
    gold = story("gold/totals").create()
    for number in range(3):
        gold.append([(f"new-{number}", 100, 1)])
    found = terminal.compactions()
    assert [(key, each["reason"]) for key, each in found.items()] == [
        ("silver/orders", "DUE"),
        ("gold/totals", "NO_SLOT"),
        ("bronze/orders", "NO_TABLE"),
    ]
    silver, gold = found["silver/orders"], found["gold/totals"]
    # Gold was written three times within the day: silver was read as often, and a compaction would have spared each read 5 of 6 files.
    assert silver["net_benefit"]["benefit_usd_per_day"] == pytest.approx(
        3 * 5 * usd_per_opening(latest_orders.prices, on_s3=False), rel=1e-3
    )
    assert gold["net_benefit"]["benefit_usd_per_day"] == 0
    alone = terminal.compactions("silver/orders")["silver/orders"]
    assert {**alone, "rank": 0} == {**silver, "rank": 0}
    free = terminal.compactions(LAKEHOUSE_COMPACTION_SLOTS="2")
    assert free["gold/totals"]["reason"] == "DUE"
