"""The report, from a lake in memory."""

from collections import Counter
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from lakehouse import Append, Landing, Table
from lakehouse.base.clock import now_ms
from lakehouse.base.text import DAY_MS
from lakehouse.lake.state_tables import record_operation
from lakehouse.report.run import _costs_by_day, read_report
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_assets import example_lake
from lakehouse_tests.support.example_histories import failed


def declare(*names: str) -> dict[str, Table]:
    tables = [
        Table(
            key=f"bronze/{name}",
            source=Landing(prefix=f"landing/{name}/", format="json", schema="id BIGINT"),
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
    assert [each["table"] for each in found["attention"]] == ["bronze/torn"]
    assert found["costs"]["groups"] == [] and found["costs"]["until"] is None


def test_each_log_is_read_once(store, report) -> None:
    for key in ("bronze/a", "bronze/b"):
        LogBuilder(store, key).create().append([("f", 100)])
    store.was_read.clear()
    report("a", "b", "later")
    commits = Counter(name for name in store.was_read if "/_delta_log/" in name)
    assert len(commits) == 4 and set(commits.values()) == {1}


def test_costs_by_day_are_in_the_order_of_days() -> None:
    charges = [
        {"x_day": date(1970, 1, day), "x_table": table, "BilledCost": Decimal(day) / 2}
        for day, table in ((3, "bronze/a"), (2, "bronze/a"), (2, "bronze/b"))
    ]
    assert _costs_by_day(charges) == [[DAY_MS, 2.0], [2 * DAY_MS, 1.5]]


def test_failed_checks_and_a_stopped_compaction_need_a_person(
    store: MemoryStore, tmp_path: Path
) -> None:
    LogBuilder(store, "bronze/a").create().append([("f", 1)])
    lake, tables = example_lake(tmp_path, store), declare("a")
    for number in range(3):
        failure = failed(now_ms() - number, table="bronze/a", why="it broke")
        record_operation(lake, failure)
    failed_checks = [("bronze/a", "required")]
    found = read_report(lake, tables, failed_checks=failed_checks)
    stopped, check = found["attention"]
    assert stopped["table"] == check["table"] == "bronze/a"
    assert "3 compactions in a row failed" in stopped["sentence"]
    assert check["sentence"].startswith("the check required failed")
