"""The report, from logs and journal in memory."""

from collections import Counter

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.core.journal_records import Pause
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.journal.journal import Journal, record_vacuum
from lakehouse.engine.report import read_report
from lakehouse_tests.defs.example import example_lake
from lakehouse_tests.engine.journal.test_vacuums import past_vacuum
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.memory_store import MemoryStore


def declare(*names: str) -> dict[str, Table]:
    tables = [
        Table(
            key=f"bronze/{name}",
            source=Landing(prefix=f"landing/{name}/", format="json", schema="id STRING"),
            write=Append(),
        )
        for name in names
    ]
    return {table.key: table for table in tables}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def report(store: MemoryStore, tmp_path):
    """Makes the report of these tables."""
    return lambda *names: read_report(example_lake(tmp_path, store), declare(*names))


def commands(found) -> list[str]:
    return [each["command"].removeprefix("lakehouse ") for each in found["attention"]]


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_shown(store, report) -> None:
    LogBuilder(store, "bronze/good").create().append([("a", 100, 1), ("b", 200, 1)])
    LogBuilder(store, "bronze/torn").create().append([("a", 1)]).append([("b", 1)])
    store.delete([f"bronze/torn/_delta_log/{1:020}.json"])
    found = report("good", "torn", "later")
    torn, good, later = found["tables"]
    assert [each["table"] for each in (torn, good, later)] == [
        "bronze/torn",
        "bronze/good",
        "bronze/later",
    ]
    assert (good["health"]["file_count"], good["health"]["row_count"]) == (2, 2)
    assert [count for _, count in good["file_counts"]] == [0, 2]
    assert torn["problem"] and torn["health"]["score"] is None and later["problem"] == ""
    assert commands(found) == ["health bronze/torn", "inventory load"]
    assert found["costs"]["groups"] == [] and found["costs"]["until"] is None


def test_each_log_is_read_once(store, report) -> None:
    for key in ("bronze/a", "bronze/b", "quarantine/bronze/b"):
        LogBuilder(store, key).create().append([("f", 100)])
    store.was_read.clear()
    report("a", "b", "later")
    commits = Counter(name for name in store.was_read if "/_delta_log/" in name)
    assert len(commits) == 6 and set(commits.values()) == {1}


def test_pauses_quarantine_late_vacuums_and_undeclared_tables_are_listed(store, report) -> None:
    LogBuilder(store, "bronze/a").create().append([("f", 1)])
    LogBuilder(store, "silver/old").create().append([("f", 1)])
    LogBuilder(store, "quarantine/bronze/a").create().append([("q", 10, 3)])
    Journal(store).pause(Pause(table="bronze/a", since_ms=START_MS, why="a migration"))
    record_vacuum(store, "bronze/a", past_vacuum(now_ms() - 3 * DAY_MS))
    found = report("a")
    assert commands(found) == [
        "quarantine show bronze/a",
        "vacuum bronze/a --dry-run",
        "resume bronze/a",
        "inventory load",
        "",
    ]
    assert "silver/old is in the lake" in found["attention"][-1]["sentence"]
