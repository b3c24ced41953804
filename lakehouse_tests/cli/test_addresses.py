"""`lakehouse health` and `lakehouse plan` of any Delta table, by its address: nothing is adopted and nothing is written."""

import os
from pathlib import Path

import pytest

from lakehouse.store import S3Store
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.terminal import Terminal


def everything_in(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_any_table_is_looked_at_by_its_address_and_left_as_it_is(
    terminal: Terminal, warehouse: Path
) -> None:
    before = everything_in(warehouse)
    orders, customers = terminal.json(
        "health", f"{warehouse}/events", f"file://{warehouse}/customers"
    )
    assert (orders["table"], orders["uri"]) == ("silver/events", f"{warehouse}/events")
    names = ("file_count", "small_file_count", "mergeable_file_count", "row_count")
    assert [orders[name] for name in names] == [12] * 4
    assert (customers["uri"], customers["file_count"]) == (f"{warehouse}/customers", 1)
    assert customers["row_count"] == 3
    compaction, vacuum = terminal.json("plan", f"{warehouse}/events")
    assert (compaction["table"], compaction["reason"]) == ("silver/events", "BELOW_THRESHOLD")
    assert "12 files" in compaction["sentence"] and "merge into 2" in compaction["sentence"]
    assert (vacuum["operation"], vacuum["reason"]) == ("vacuum", "NOTHING_PAST")
    assert everything_in(warehouse) == before
    assert not terminal.root.exists()


def test_a_relative_address_starts_where_the_person_is(
    terminal: Terminal, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(warehouse.parent)
    [orders] = terminal.json("health", "./w/events")
    assert orders["uri"] == os.path.join(os.getcwd(), "w/events")
    said = "table 'w/events' is not declared; did you mean the folder ./w/events?"
    assert said in terminal.run("health", "w/events").stderr
    assert "did you mean the folder ./w?" in terminal.run("plan", "w").stderr
    assert terminal.run("plan", "w/nothing").stderr.endswith(
        "; the address of a table begins with ./, / or s3://\n"
    )


def test_other_commands_say_how_to_adopt_the_table(terminal: Terminal, warehouse: Path) -> None:
    for command in ("compact", "vacuum", "history"):
        refused = terminal.run(command, f"{warehouse}/events").stderr
        assert f"adopt it first: lakehouse adopt {warehouse}/events" in refused


def test_a_declared_table_is_the_same_by_its_key_and_by_its_address(told: Terminal) -> None:
    assert told.json("health", f"{told.root}/bronze/orders") == told.json("health", "bronze/orders")


def test_an_address_without_a_table_says_what_to_do(terminal: Terminal, warehouse: Path) -> None:
    result = terminal.run("health", f"{warehouse}/event")
    assert result.exit_code == 2
    assert f"there is no Delta table at {warehouse}/event:" in result.stderr
    assert "lakehouse adopt --prefix FOLDER --dry-run" in result.stderr
    assert terminal.run("plan", f"{warehouse}/event").exit_code == 2
    said = "Use a folder, file:///folder or s3://bucket/folder"
    assert said in terminal.run("plan", "gs://bucket/t").stderr


def test_a_table_in_a_bucket_is_read_beside_a_lake_on_disk(terminal: Terminal, bucket: str) -> None:
    LogBuilder(S3Store(bucket, "warehouse"), "sales/orders").create().append(
        [("a", 10, 1), ("b", 20, 2)]
    )
    environ = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    [orders] = terminal.json("health", f"s3a://{bucket}/warehouse/sales/orders", **environ)
    assert (orders["uri"], orders["file_count"]) == (f"s3://{bucket}/warehouse/sales/orders", 2)
    assert orders["row_count"] == 3
    result = terminal.run("health", f"s3://{bucket}/warehouse/sales/order", **environ)
    assert f"there is no Delta table at s3://{bucket}/warehouse/sales/order:" in result.stderr
