"""`lakehouse plan` and `compact --dry-run`."""

import json
from typing import Any

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.compact.plan.estimate import usd_per_opening
from lakehouse_tests.log_builder import MINUTE_MS, START_MS
from lakehouse_tests.support.example_terminal import latest_orders
from lakehouse_tests.support.terminal import PREDICTION, Terminal, type_of_story


def plans(terminal: Terminal, *tables: str, exit_code: int = 0) -> list[dict[str, Any]]:
    """What `plan --json` says of the plans alone, without the tables' places in the fleet."""
    return [
        {name: value for name, value in each.items() if name not in ("fleet", "declared")}
        for each in terminal.json("plan", *tables, exit_code=exit_code)
    ]


# A plan that removes nothing.
NOTHING: dict[str, Any] = {
    **dict.fromkeys(("version", "engine", "why_not_deltalake", "statement")),
    **dict.fromkeys(("target_file_bytes", "verify", "verify_sentence")),
    **dict.fromkeys(("files_removed", "files_added", "bytes_removed", "files_left"), 0),
    "bins": [],
}
FOUND: list[dict[str, Any]] = [
    {
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
    },
    {
        **NOTHING,
        "table": "silver/orders",
        "version": 3,
        "reason": "NOTHING_SHARES_A_BIN",
        "sentence": "one file, nothing to merge",
        "engine": "spark",
        "why_not_deltalake": "",
        "statement": "packing",
        "target_file_bytes": 16777216,
    },
    {
        **NOTHING,
        "table": "gold/totals",
        "reason": "NO_TABLE",
        "sentence": "the table is declared, but does not exist yet",
    },
]


def test_a_plan_is_a_list_with_every_declared_table_in_order(told: Terminal) -> None:
    found = plans(told)
    estimates = [plan.pop("estimate") for plan in found]
    told = [
        estimate and (estimate["seconds"], estimate["usd"], estimate["source"])
        for estimate in estimates
    ]
    assert told == [(0.483, 0.000295169, "defaults"), (0.0, 0.0, "defaults"), None]
    assert found == FOUND


def test_one_table_gives_a_list_too_and_one_named_twice_is_planned_once(told: Terminal) -> None:
    assert [each["table"] for each in told.json("plan", "silver/orders")] == ["silver/orders"]
    assert [
        each["table"] for each in told.json("plan", "gold/totals", "silver/orders", "gold/totals")
    ] == ["gold/totals", "silver/orders"]


def test_a_person_sees_the_largest_gain_first_and_the_files_on_request(told: Terminal) -> None:
    lines = told.run("plan", "--verbose").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == [
        "bronze/orders",
        "silver/orders",
        "gold/totals",
    ]
    compared = "this process compares row counts and column statistics in the log"
    assert (
        f"bronze/orders: about 0.5 s and 0.000295 USD, predicted from defaults; {compared}" in lines
    )
    assert "bronze/orders, d=1: 3 files, 303 B" in lines
    assert lines[-1].split() == ["102", "B", "d=1/small-2"]


def test_a_dry_run_is_exactly_the_plan_and_nothing_is_written(told: Terminal) -> None:
    before = sorted(told.home.rglob("*"))
    assert [told.json("compact", "bronze/orders", "--dry-run")] == plans(told, "bronze/orders")
    told.run("health")
    assert sorted(told.home.rglob("*")) == before


def test_a_table_that_cannot_be_planned_does_not_hide_the_others(told: Terminal) -> None:
    (told.root / "bronze/orders/_delta_log/00000000000000000001.json").unlink()
    result = told.run("plan")
    assert result.exit_code == 1
    assert "silver/orders" in result.stdout and "NOTHING_SHARES_A_BIN" in result.stdout
    assert result.stderr.startswith("Broken: log of bronze/orders")
    documents = told.json("plan", exit_code=1)
    assert [(each["reason"], each["version"]) for each in documents] == [
        ("BROKEN", None),
        ("NOTHING_SHARES_A_BIN", 3),
        ("NO_TABLE", None),
    ]


def test_an_unknown_table_is_refused_with_the_nearest_names(told: Terminal) -> None:
    result = told.refused("plan", "silver/order")
    assert (
        result
        == "Refused: table 'silver/order' is not declared; did you mean silver/orders or bronze/orders?\n"
    )
    assert "did you mean" in told.refused("compact", "orders")
    assert "does not exist yet. Write it first: lakehouse materialize gold/totals" in told.refused(
        "compact", "gold/totals", "--dry-run"
    )


def test_the_fleet_is_ranked_by_what_a_compaction_gives_a_day_over_what_it_costs(
    terminal: Terminal, story: type_of_story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakehouse.compact.fleet_from_logs.now_ms", lambda: START_MS + 3_600_000)
    small = [(f"d=1/small-{number}", 100, 10) for number in range(6)]
    story("silver/orders").create(partition_by=["d"]).append(small)
    gold = story("gold/totals").create()
    for number in range(3):
        gold.append([(f"new-{number}", 100, 1)])
    found = terminal.json("plan")
    fleet = sorted((each["fleet"] for each in found), key=lambda each: each["rank"])
    assert [
        (each["table"], each["fleet"]["reason"], each["fleet"]["request"]) for each in found
    ] == [
        ("bronze/orders", "NO_FACTS", False),
        ("silver/orders", "DUE", True),
        ("gold/totals", "NO_SLOT", False),
    ]
    # Gold was written three times within the day: silver was read as often, and a compaction would have spared each read 5 of 6 files.
    assert fleet[0]["benefit_usd_per_day"] == pytest.approx(
        3 * 5 * usd_per_opening(latest_orders.prices, on_s3=False), rel=1e-3
    )
    assert fleet[0]["ratio"] == pytest.approx(
        fleet[0]["benefit_usd_per_day"] / fleet[0]["cost_usd"], rel=1e-2
    )
    assert (fleet[2]["benefit_usd_per_day"], fleet[2]["cost_usd"], fleet[2]["ratio"]) == (
        None,
        None,
        None,
    )
    [alone] = terminal.json("plan", "silver/orders")
    assert alone["fleet"] == fleet[0]
    assert [
        each["fleet"]["request"] for each in terminal.json("plan", LAKEHOUSE_COMPACTION_SLOTS="2")
    ] == [False, True, True]


@pytest.mark.parametrize(("is_undone", "reason"), [(False, "COOLING_DOWN"), (True, "DUE")])
def test_a_compaction_that_was_undone_cools_nothing_down(
    terminal: Terminal,
    story: type_of_story,
    monkeypatch: pytest.MonkeyPatch,
    is_undone: bool,
    reason: str,
) -> None:
    monkeypatch.setattr(
        "lakehouse.compact.fleet_from_logs.now_ms", lambda: START_MS + 3 * MINUTE_MS
    )
    small = [(f"d=1/small-{number}", 100, 10) for number in range(8)]
    log = story("bronze/orders").create(partition_by=["d"]).append(small)
    log.optimize(
        ["d=1/small-0", "d=1/small-1"],
        into=("d=1/merged", 200, 20),
        user_metadata=json.dumps(PREDICTION),
    )
    if is_undone:
        log.commit("RESTORE", user_metadata='{"restored":1}')
    [found] = terminal.json("plan", "bronze/orders")
    assert found["fleet"]["reason"] == reason


def test_a_paused_table_says_so_in_the_ranking(told: Terminal) -> None:
    told.run("pause", "bronze/orders", "--why", "an audit")
    [found] = told.json("plan", "bronze/orders")
    assert (found["fleet"]["reason"], found["fleet"]["request"]) == ("PAUSED", False)
    assert "an audit" in found["fleet"]["sentence"]


@pytest.mark.parametrize(
    ("operation", "written", "reason"),
    [
        ("REORG", json.dumps(PREDICTION), "COOLING_DOWN"),
        ("OPTIMIZE", json.dumps(PREDICTION), "COOLING_DOWN"),
        ("OPTIMIZE", "by hand", "DUE"),
    ],
)
def test_a_table_cools_down_after_our_own_compactions_of_either_kind(
    terminal: Terminal, story: type_of_story, operation: str, written: str, reason: str
) -> None:
    log = story("gold/totals").create().append([("a", 100), ("b", 100), ("c", 100), ("d", 100)])
    add = {
        "path": "e",
        "partitionValues": {},
        "size": 200,
        "modificationTime": START_MS,
        "dataChange": False,
    }
    removes = [
        {"remove": {"path": path, "deletionTimestamp": START_MS, "dataChange": False, "size": 100}}
        for path in ("a", "b")
    ]
    log.commit(operation, {"add": add}, *removes, user_metadata=written, committed_ms=now_ms())
    [found] = terminal.json("plan", "gold/totals")
    assert (found["reason"], found["fleet"]["reason"]) == ("MERGEABLE_FILES", reason)
