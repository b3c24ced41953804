"""`lakehouse history`."""

import json

from lakehouse.base.clock import now_ms
from lakehouse.lake.state_tables import record_operation
from lakehouse_tests.log_builder import MINUTE_MS, START_MS
from lakehouse_tests.support.example_histories import failed
from lakehouse_tests.support.example_terminal import latest_orders
from lakehouse_tests.support.terminal import PREDICTION, Terminal, type_of_story


def test_commits_come_newest_first_and_a_compaction_with_its_account(told: Terminal) -> None:
    history = told.json("history", "silver/orders")
    assert (history["table"], history["version"]) == ("silver/orders", 3)
    expected = ["OPTIMIZE", "WRITE", "WRITE", "CREATE TABLE"]
    assert [commit["operation"] for commit in history["commits"]] == expected
    newest = history["commits"][0]
    counts = {"files_removed": 2, "files_added": 1, "bytes_removed": 300}
    unknown = dict.fromkeys(("predicted", "actual", "error"))
    assert newest.pop("compaction") == {
        "reason": "MERGEABLE_FILES",
        "sentence": "why it ran",
        "as_predicted": True,
        "figures": {
            **{
                name: {"predicted": count, "actual": count, "error": 0.0}
                for name, count in counts.items()
            },
            "bytes_added": {**unknown, "actual": 280},
            "seconds": unknown,
            "usd": unknown,
        },
    }
    commit = {
        "version": 3,
        "committed_ms": 1_700_000_180_000,
        "operation": "OPTIMIZE",
        "changed_data": False,
    }
    assert newest == {**commit, **counts, "bytes_added": 280}
    assert all(commit["compaction"] is None for commit in history["commits"][1:])


def test_a_foreign_compaction_has_no_prediction(terminal: Terminal, story: type_of_story) -> None:
    story("gold/totals").create().append([("a", 1), ("b", 1)]).optimize(
        ["a", "b"], into=("c", 2), user_metadata="by hand"
    )
    compaction = terminal.json("history", "gold/totals", "--limit", "1")["commits"][0]["compaction"]
    assert (compaction["reason"], compaction["as_predicted"]) == (None, None)
    files = compaction["figures"]["files_removed"]
    assert (files["predicted"], files["actual"]) == (None, 2)
    assert "not by this program" in terminal.run("history", "gold/totals").stdout


def test_rows_that_moved_to_the_archive_say_why(terminal: Terminal, story: type_of_story) -> None:
    plan = {"reason": "PAST_THE_CUTOFF", "sentence": "1 partition moves to the archive"}
    written = json.dumps({"rows_moved": "archive", "plan": plan})
    log = story("gold/totals").create().append([("a", 1)])
    remove = {"remove": {"path": "a", "deletionTimestamp": START_MS, "dataChange": True}}
    log.commit("DELETE", remove, user_metadata=written)
    log.commit("WRITE", user_metadata='{"rows_moved":"restore"}')
    shown = terminal.run("history", "gold/totals").stdout
    assert "1 partition moves to the archive" in shown and "rows moved by restore" in shown


def test_a_prediction_that_failed_is_shown(terminal: Terminal, story: type_of_story) -> None:
    wrong = json.dumps({"plan": {**PREDICTION["plan"], "files_removed": 7}})
    story("gold/totals").create().append([("a", 100), ("b", 200)]).optimize(
        ["a", "b"], into=("c", 280), user_metadata=wrong
    )
    assert "wrongly predicted: files removed 7" in terminal.run("history", "gold/totals").stdout


def test_seconds_and_money_have_their_prediction(terminal: Terminal, story: type_of_story) -> None:
    estimate = {"seconds": 3.0, "usd": 0.0002, "bytes_written": 300, "source": "defaults"}
    written = {
        **PREDICTION,
        "started_ms": START_MS + 2 * MINUTE_MS - 2_500,
        "plan": {**PREDICTION["plan"], "estimate": estimate},
    }
    builder = story("gold/totals").create().append([("a", 100), ("b", 200)])
    builder.optimize(["a", "b"], into=("c", 240), user_metadata=json.dumps(written))
    told = terminal.json("history", "gold/totals")
    figures = told["commits"][0]["compaction"]["figures"]
    assert figures["seconds"] == {"predicted": 3.0, "actual": 2.5, "error": 0.2}
    assert (figures["usd"]["predicted"], figures["usd"]["actual"]) == (0.0002, 0.000152778)
    exact = dict.fromkeys(("files_removed", "files_added", "bytes_removed"), 0.0)
    learnt = {"bytes_added": 0.25, "seconds": 0.2, "usd": 0.3091}
    assert told["account"]["mean_errors"] == exact | learnt
    assert (told["account"]["bytes_ingested"], told["account"]["write_amplification"]) == (300, 0.8)
    assert "as predicted; 2.5 s, 3.0 predicted" in terminal.run("history", "gold/totals").stdout


def test_tries_that_came_to_nothing_are_in_the_account(told: Terminal) -> None:
    for result in ("failed", "conflict"):
        operation = failed(now_ms(), result, table=latest_orders.key, wasted_bytes=300, seconds=1.5)
        record_operation(told.lake, operation)
    account = told.json("history", "silver/orders")["account"]
    expected = (2, 3.0, 600)
    assert (account["wasted_runs"], account["wasted_seconds"], account["wasted_bytes"]) == expected
    assert "wasted in 30 days: 2 runs, 3.0 s, 600 B" in told.run("history", "silver/orders").stdout
