"""`lakehouse backtest`."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from lakehouse_tests.support.terminal import Terminal, type_of_story


@pytest.fixture
def full(terminal: Terminal, story: type_of_story) -> Terminal:
    """A lake whose one table got nine batches, and one compaction after the fourth, which is what its policy says."""
    orders = story("bronze/orders").create(partition_by=["d"])
    for place in range(9):
        orders.append([(f"d=1/{place}", 100 + place, 10)])
        if place == 3:
            orders.optimize([f"d=1/{each}" for each in range(4)], into=("d=1/c", 203, 40))
    return terminal


def by_name(document: Any) -> dict[str, Any]:
    return {replay["name"]: replay for replay in document["replays"]}


def test_side_by_side_with_the_policy_in_force_and_with_what_happened(full: Terminal) -> None:
    document = full.json("backtest", "bronze/orders", "--min-small-files", "20")
    assert (document["table"], document["first_version"]) == ("bronze/orders", 0)
    found = by_name(document)
    assert list(found) == ["given", "in_force", "none", "really"]
    assert [replay["compaction_count"] for replay in found.values()] == [0, 2, 0, 1]
    assert found["given"]["file_counts"] == found["none"]["file_counts"] == [*range(1, 10)]
    assert found["in_force"]["file_counts"] == [1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert found["really"]["file_counts"] == [1, 2, 3, 1, 2, 3, 4, 5, 6]
    assert found["really"]["bytes_rewritten"] == 406


def test_a_person_sees_the_sums(full: Terminal) -> None:
    lines = full.run("backtest", "bronze/orders").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["in", "none", "really"]
    assert lines[-1] == "writers added 936 B since version 0"


def test_any_table_is_replayed_by_its_address(terminal: Terminal, tmp_path: Path) -> None:
    place = str(tmp_path / "elsewhere" / "orders")
    for number in range(3):
        deltalake.write_deltalake(place, pa.table({"id": [number]}), mode="append")
    found = by_name(terminal.json("backtest", f"file://{place}", "--min-small-files", "2"))
    assert found["given"]["compaction_count"] and found["none"]["file_counts"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("/nowhere/at/all",), "there is no Delta table"),
        (("bronze/orders", "--after-write", "--schedule", "0 3 * * *"), "use either"),
        (("bronze/orders", "--schedule", "nonsense"), "nonsense"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    full: Terminal, arguments: tuple[str, ...], message: str
) -> None:
    assert message in full.refused("backtest", *arguments)
