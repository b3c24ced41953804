"""The facts of the morning page, from logs and journal in memory, and the pages that are kept."""

import json
from collections import Counter
from dataclasses import replace

import pytest

from lakehouse import Append, Landing, Table, Vacuum
from lakehouse.core.journal_records import Pause, VacuumRecord
from lakehouse.core.report.attention import Concern
from lakehouse.core.report.values import ReportedTable
from lakehouse.core.units import DAY_MS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.journal.journal import Journal, record_vacuum
from lakehouse.engine.report.read import read_page
from lakehouse.engine.report.stored_pages import NEWEST, EarlierPage, earlier_page, store_page
from lakehouse_tests.defs.example import AwayStore, example_lake
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.memory_store import MemoryStore


def declare(*names: str) -> dict[str, Table]:
    landings = {
        name: Landing(prefix=f"landing/{name}/", format="json", schema="id STRING")
        for name in names
    }
    tables = [
        Table(key=f"bronze/{name}", source=source, write=Append())
        for name, source in landings.items()
    ]
    return {table.key: table for table in tables}


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def page(store: MemoryStore, tmp_path):
    """Makes the page of these tables."""
    return lambda *names: read_page(example_lake(tmp_path, store), declare(*names))


def of(found, concern: Concern) -> list[tuple[str, str]]:
    return [(each.table, each.command) for each in found.attention if each.concern is concern]


def test_a_table_that_cannot_be_read_is_named_and_the_others_are_shown(store, page) -> None:
    LogBuilder(store, "bronze/good").create().append([("a", 100, 1), ("b", 200, 1)])
    LogBuilder(store, "bronze/torn").create().append([("a", 1)]).append([("b", 1)])
    store.delete([f"bronze/torn/_delta_log/{1:020}.json"])
    found = page("good", "torn", "later")
    good, torn, later = sorted(
        found.tables, key=lambda table: ["good", "torn", "later"].index(table.table[7:])
    )
    assert (good.file_count, good.size_bytes, good.row_count) == (2, 300, 2)
    assert [count for _, count in good.file_counts] == [0, 2]
    assert torn.problem and torn.file_count is None and torn.exists
    assert later == ReportedTable(table="bronze/later", exists=False, quarantined_rows=0)
    assert of(found, Concern.UNREADABLE) == [("bronze/torn", "lakehouse health bronze/torn")]
    assert found.worst_first[0] is torn and found.worst_first[-1] is later


def test_each_log_is_read_once_and_bytes_are_those_of_the_inventory(store, page) -> None:
    for key in ("bronze/a", "bronze/b", "silver/old", "quarantine/bronze/b"):
        builder = LogBuilder(store, key).create().append([("f", 100), ("gone", 10)])
        builder.store_data()
    store.delete(["bronze/b/gone"])
    # Files that are younger than a minute may be too new for the report.
    later_ms = now_ms() + 2 * 60_000
    scan(store, now_ms=later_ms)
    store.was_read.clear()
    found = page("a", "b", "later")
    commits = Counter(name for name in store.was_read if "/_delta_log/" in name)
    assert len(commits) == 8 and set(commits.values()) == {1}
    assert of(found, Concern.MISSING_FILES) == [("bronze/b", "lakehouse inventory report bronze/b")]
    [live] = [each for each in found.stored.shares if each.kind == "live"]
    assert (live.file_count, live.size_bytes) == (7, 4 * 110 - 10)
    assert {share.storage_class for share in found.stored.shares} == {"not recorded"}


def test_pauses_quarantine_and_undeclared_tables_have_the_command_that_helps(store, page) -> None:
    LogBuilder(store, "bronze/a").create().append([("f", 1)])
    LogBuilder(store, "silver/old").create().append([("f", 1)])
    LogBuilder(store, "quarantine/bronze/a").create().append([("q", 10, 3)])
    Journal(store).pause(Pause(table="bronze/a", since_ms=START_MS, why="a migration"))
    found = page("a")
    assert of(found, Concern.PAUSED) == [("bronze/a", "lakehouse resume bronze/a")]
    assert of(found, Concern.QUARANTINE) == [("bronze/a", "lakehouse quarantine show bronze/a")]
    assert ["silver/old is in the lake" in each.sentence for each in found.attention].count(True)
    assert of(found, Concern.INVENTORY_LATE) == [("", "lakehouse inventory scan")]
    assert found.stored.created_ms is None and "no complete report" in found.stored.problem
    assert [table.table for table in found.waiting["PAUSED"]] == ["bronze/a"]


def test_a_vacuum_is_late_only_for_files_that_none_has_considered(store, page) -> None:
    builder = LogBuilder(store, "bronze/a").create().append([("a", 100, 1), ("b", 200, 1)])
    builder.optimize(["a", "b"], into=("c", 280, 2))
    assert of(page("a"), Concern.VACUUM_LATE) == [
        ("bronze/a", "lakehouse vacuum bronze/a --dry-run")
    ]
    assert page("a").tables[0].overdue_bytes == 300
    record_vacuum(store, "bronze/a", _vacuum(horizon_ms=START_MS + DAY_MS, failed={"x": "denied"}))
    found = page("a")
    assert found.tables[0].overdue_bytes == 0 and not of(found, Concern.VACUUM_LATE)
    assert of(found, Concern.FAILED_DELETION) == [("bronze/a", "lakehouse vacuum bronze/a")]


def test_a_table_without_vacuum_is_never_late(store, tmp_path) -> None:
    builder = LogBuilder(store, "bronze/a").create().append([("a", 100, 1), ("b", 200, 1)])
    builder.optimize(["a", "b"], into=("c", 280, 2))
    declared = {key: replace(each, vacuum=Vacuum(mode="off")) for key, each in declare("a").items()}
    found = read_page(example_lake(tmp_path, store), declared)
    assert found.tables[0].overdue_bytes is None and not of(found, Concern.VACUUM_LATE)


def test_storage_that_does_not_answer_gives_a_page_that_says_so(tmp_path) -> None:
    found = read_page(example_lake(tmp_path, AwayStore()), declare("a"))
    assert "cannot be listed now" in found.tables[0].problem
    assert found.tables[0].quarantined_rows is None and found.money is None
    unreadable = [("bronze/a", "lakehouse health bronze/a"), ("", "")]
    assert of(found, Concern.UNREADABLE) == unreadable


def test_the_pages_of_fourteen_days_are_kept_and_other_files_stay(store) -> None:
    store.put("_lakehouse/reports/notes.txt", b"a person's own")
    for day in range(20):
        scores = [{"table": "bronze/a", "score": float(day)}, {"table": "b", "score": None}]
        values = {"created_ms": day, "records": {"size_bytes": day}, "tables": scores}
        store_page(store, f"page {day}", values, now_ms=START_MS + day * DAY_MS)
    names = [file.name for file in store.list("_lakehouse/reports")]
    assert len(names) == 2 * 14 + 2 and "_lakehouse/reports/notes.txt" in names
    assert store.read(NEWEST) == b"page 19"
    earlier = earlier_page(store, now_ms=START_MS + 19 * DAY_MS)
    assert earlier == EarlierPage(created_ms=18, records_bytes=18, scores={"bronze/a": 18.0})
    assert earlier_page(store, now_ms=START_MS) == EarlierPage()


def test_a_score_that_has_fallen_since_yesterday_is_shown_next_to_it(store, page) -> None:
    LogBuilder(store, "bronze/a").create().append([("f", 1)])
    [before] = page("a").tables
    values = {**page("a").as_json(), "tables": [{"table": "bronze/a", "score": before.score + 5}]}
    assert not before.has_fallen
    store_page(store, "page", values, now_ms=START_MS)
    [after] = page("a").tables
    assert after.has_fallen and after.score_before == before.score + 5


def test_damaged_values_of_an_earlier_day_are_unknown(store) -> None:
    store_page(store, "page", {}, now_ms=START_MS)
    [name] = [file.name for file in store.list("_lakehouse/reports") if file.name.endswith(".json")]
    for damaged in (b"{", json.dumps([1]).encode()):
        store.put(name, damaged)
        assert earlier_page(store, now_ms=START_MS + DAY_MS) == EarlierPage()


def _vacuum(*, horizon_ms: int, failed: dict[str, str]) -> VacuumRecord:
    numbers = dict.fromkeys(
        (
            *("version", "predicted_files", "predicted_bytes", "predicted_requests"),
            *("deleted_files", "deleted_bytes", "spared"),
        ),
        0,
    )
    return VacuumRecord(
        started_ms=START_MS,
        ended_ms=START_MS,
        mode="LITE",
        report="",
        horizon_ms=horizon_ms,
        predicted_seconds=0.0,
        predicted_usd=0.0,
        failed=failed,
        **numbers,
    )
