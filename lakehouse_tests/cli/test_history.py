"""`lakehouse history`."""

import json
from collections.abc import Callable

from lakehouse_tests.cli.conftest import PREDICTION, Terminal
from lakehouse_tests.log_builder import LogBuilder


def test_commits_come_newest_first_and_a_compaction_with_its_account(told: Terminal) -> None:
    history = told.json("history", "silver/orders")
    assert (history["table"], history["version"]) == ("silver/orders", 3)
    assert [commit["operation"] for commit in history["commits"]] == ["OPTIMIZE", "WRITE", "WRITE", "CREATE TABLE"]
    assert history["commits"][0] == {
        "version": 3,
        "committed_ms": 1_700_000_180_000,
        "operation": "OPTIMIZE",
        "changed_data": False,
        "files_added": 1,
        "files_removed": 2,
        "bytes_added": 280,
        "bytes_removed": 300,
        "compaction": {
            "reason": "MERGEABLE_FILES",
            "sentence": "why it ran",
            "predicted_files_removed": 2,
            "predicted_files_added": 1,
            "predicted_bytes_removed": 300,
            "actual_files_removed": 2,
            "actual_files_added": 1,
            "actual_bytes_removed": 300,
        },
    }
    assert all(commit["compaction"] is None for commit in history["commits"][1:])


def test_a_compaction_of_somebody_else_has_no_prediction(terminal: Terminal, story: Callable[[str], LogBuilder]) -> None:
    story("gold/totals").create().append([("a", 1), ("b", 1)]).optimize(["a", "b"], into=("c", 2), user_metadata="by hand")
    compaction = terminal.json("history", "gold/totals", "--limit", "1")["commits"][0]["compaction"]
    assert (compaction["reason"], compaction["predicted_files_removed"], compaction["actual_files_removed"]) == (None, None, 2)
    assert "not by this program" in terminal.run("history", "gold/totals").stdout


def test_a_person_reads_when_and_why(told: Terminal) -> None:
    shown = told.run("history", "silver/orders", "--compactions").stdout.splitlines()
    assert len(shown) == 3
    assert "2023-11-14 22:16:20 UTC" in shown[2]
    assert shown[2].endswith("why it ran; as predicted")


def test_a_prediction_that_failed_is_shown(terminal: Terminal, story: Callable[[str], LogBuilder]) -> None:
    wrong = json.dumps({"plan": {**PREDICTION["plan"], "files_removed": 7}})
    story("gold/totals").create().append([("a", 100), ("b", 200)]).optimize(["a", "b"], into=("c", 280), user_metadata=wrong)
    assert "predicted otherwise: files removed 7" in terminal.run("history", "gold/totals").stdout


def test_a_table_that_does_not_exist_has_no_history(told: Terminal) -> None:
    result = told.run("history", "gold/totals")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Refused: history gold/totals: the table is declared and does not exist yet")
