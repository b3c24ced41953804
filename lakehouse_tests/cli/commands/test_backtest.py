"""`lakehouse backtest`."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lakehouse.cli.commands.backtest import Subject, backtests_of
from lakehouse.cli.commands.backtest_text import print_backtests
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.settings import parse_settings
from lakehouse.engine.lake import open_lake
from lakehouse_tests.cli.conftest import Terminal, type_of_story


@pytest.fixture
def full(terminal: Terminal, story: type_of_story) -> Terminal:
    """A lake whose one table got nine batches, and one compaction after the fourth, which is what its policy says."""
    orders = story("bronze/orders").create(partition_by=["d"])
    for place in range(9):
        orders.append([(f"d=1/{place}", 100 + place, 10)])
        if place == 3:
            orders.optimize([f"d=1/{each}" for each in range(4)], into=("d=1/c", 203, 40))
    return terminal


def declared(full: Terminal) -> Subject:
    """That table with a policy of its own."""
    lake = open_lake(parse_settings(full.environ, base=full.home))
    return Subject(
        lake=lake,
        key="bronze/orders",
        layer="bronze",
        declared=Compaction(min_small_files=4),
    )


def by_name(document: Any) -> dict[str, Any]:
    return {replay["name"]: replay for replay in document["replays"]}


def test_a_replay_under_the_policy_in_force_is_alone_without_a_wish_for_more(
    full: Terminal,
) -> None:
    document = full.json("backtest", "bronze/orders")
    assert (document["table"], document["first_version"], document["from_the_beginning"]) == (
        "bronze/orders",
        0,
        True,
    )
    [replay] = document["replays"]
    assert (replay["name"], replay["run_count"], replay["bytes_rewritten"]) == (
        "in_force",
        2,
        406 + 518,
    )
    assert [version["file_count"] for version in replay["versions"]] == [1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert replay["versions"][3]["runs"][0]["bytes_added"] == 203


def test_side_by_side_with_the_policy_in_force_and_with_what_happened(full: Terminal) -> None:
    found = by_name(full.json("backtest", "bronze/orders", "--policy", "mode=off", "--compare"))
    assert list(found) == ["given", "in_force", "really"]
    assert [replay["run_count"] for replay in found.values()] == [0, 2, 1]
    assert [version["file_count"] for version in found["given"]["versions"]] == list(range(1, 10))
    assert [version["file_count"] for version in found["really"]["versions"]] == [
        1,
        2,
        3,
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert found["given"]["versions"][0]["reason"] == "OPTED_OUT"


def test_a_person_sees_the_sums_the_runs_and_the_lines(full: Terminal) -> None:
    result = full.run("backtest", "bronze/orders", "--policy", "min_small_files=2", "--compare")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["given", "in", "force", "really"]
    assert next(line for line in lines if line.startswith("compactions")).split() == [
        "compactions",
        "4",
        "2",
        "1",
    ]
    assert "bronze/orders, given:" in lines
    assert any(
        line.startswith("given: the estimated size of 3 merged files is 0.500") for line in lines
    )
    assert (
        full.run("backtest", "bronze/orders", "--verbose").stdout.count("mergeable files, 4 needed")
        == 7
    )  # every version


def test_strategies_are_compared_by_their_sums(full: Terminal) -> None:
    asked = ("backtest", "bronze/orders", "--policy", "mode=off", "--strategies")
    found = by_name(full.json(*asked))
    counts = [
        ("given", 0),
        ("by_sensor", 2),
        ("after_write", 4),
        ("each_night", 0),
    ]  # all of it happened in one second
    assert [(name, replay["run_count"]) for name, replay in found.items()] == counts
    lines = full.run(*asked).stdout.splitlines()
    assert lines[0].split() == [
        "policy",
        "compactions",
        "mean",
        "files",
        "seconds",
        "rewritten",
        "USD",
    ]
    assert [line.split()[0] for line in lines[2:6]] == ["given", "by", "after", "each"]
    assert [line for line in lines if line.startswith("bronze/orders")] == ["bronze/orders:"]


def test_strategies_stand_beside_what_happened(
    full: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    document = full.json("backtest", "bronze/orders", "--compare", "--strategies")
    assert [replay["name"] for replay in document["replays"]] == [
        "in_force",
        "after_write",
        "each_night",
        "none",
        "really",
    ]
    lines = full.run(
        "backtest", "bronze/orders", "--compare", "--strategies", "--verbose"
    ).stdout.splitlines()
    assert lines[0].split() == [
        "policy",
        "compactions",
        "mean",
        "files",
        "seconds",
        "rewritten",
        "USD",
    ]
    assert [line for line in lines if line.startswith("bronze/orders")] == [
        "bronze/orders, in force:",
        "bronze/orders, really:",
    ]
    found = backtests_of(declared(full), strategies=True)
    assert [*found] == ["in_force", "after_write", "each_night", "none"]
    print_backtests(found, verbose=True)
    assert "each night" in capsys.readouterr().out


def test_any_delta_table_serves_also_one_that_another_program_wrote(
    terminal: Terminal, tmp_path: Path
) -> None:
    place = str(tmp_path / "elsewhere")
    for start in range(6):
        deltalake.write_deltalake(
            place, pa.table({"id": range(start * 10, start * 10 + 10)}), mode="append"
        )
    deltalake.DeltaTable(place).optimize.compact()
    deltalake.DeltaTable(place).delete("id < 15")
    document = terminal.json(
        "backtest",
        place,
        "--policy",
        "min_small_files=3",
        "--policy",
        "cooldown_minutes=0",
        "--compare",
    )
    assert document["table"] == "elsewhere"
    found = by_name(document)
    assert [version["file_count"] for version in found["given"]["versions"]] == [
        1,
        2,
        1,
        2,
        1,
        2,
        1,
    ]
    assert [version["file_count"] for version in found["really"]["versions"]] == [
        1,
        2,
        3,
        4,
        5,
        1,
        1,
    ]
    assert {replay["versions"][-1]["row_count"] for replay in found.values()} == {45}
    assert found["in_force"]["run_count"] == 0
    assert found["in_force"]["estimated"]["moved_removals"] == 1
    (tmp_path / "link").symlink_to(place)
    assert (
        terminal.json("backtest", f"file://{place}")
        == terminal.json("backtest", place)
        == terminal.json("backtest", str(tmp_path / "link"))
    )


REFUSED = {
    "orderz": "did you mean",
    "/nowhere/at/all": "there is no Delta table at /nowhere/at/all",
    "s3://bucket": "Use s3://bucket/path/of/table",
    "hdfs://there/table": "Use a folder, file:///folder or s3://bucket/folder",
    "https://user:secret@host/table": "the address of a table begins with https:, which is not supported. Use",
    "s3://user:secret@bucket/table": "the address of a table holds a user, a password",
    "/": "Use the folder of one table",
    # A table with this name below the folder of the command is another one.
    "/bronze_orders": "there is no Delta table at /./bronze_orders",
}


@pytest.mark.parametrize(("table", "said"), REFUSED.items(), ids=REFUSED)
def test_what_is_no_table_is_refused(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    deltalake.write_deltalake("bronze_orders", pa.table({"id": [1]}))
    result = terminal.refused("backtest", table)
    assert said in result and "secret" not in result


def test_an_unknown_knob_is_refused_with_the_nearest(full: Terminal) -> None:
    assert "Did you mean min_small_files" in full.refused(
        "backtest", "bronze/orders", "--policy", "min_smal_files=3"
    )
