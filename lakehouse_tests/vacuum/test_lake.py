"""One run over many tables: what it asks of storage grows with the tables, and what changes meanwhile is seen. No Spark."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.declare.table import Table
from lakehouse.lake.lake import Lake
from lakehouse.vacuum import run
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.run import scan
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder, add_of
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.faults import LONG_AGO
from lakehouse_tests.support.vacuums import deleted, table_of

nobody: Any = None


class Counting(MemoryStore):
    """It counts requests, and what is read by name, without those for the lake's operations.

    Everything but the lake's own records is of long ago.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.reads = Counter[str](), Counter[str]()
        for kind in ("list", "folders", "walk", "stat", "put", "put_if_absent", "delete_each"):
            setattr(self, kind, self._counted(kind, getattr(self, kind)))

    def _counted(self, kind: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **options: Any) -> Any:
            self.asked[kind] += not _is_state(arguments[0])
            answer = method(*arguments, **options)
            if kind == "put" and not arguments[0].startswith("_lakehouse/"):
                self._files[arguments[0]] = (arguments[1], LONG_AGO)
            return answer

        return asked

    def read(self, name: str) -> bytes:
        if not _is_state(name):
            self.asked["read"] += 1
            self.reads[name] += 1
        return super().read(name)


def _is_state(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("_lakehouse/operations")


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "hold", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(run, "confirmed_by_delta", lambda *arguments: [*arguments[-1]])


def lake_of(home: Path, count: int) -> tuple[Lake, Counting, list[Table]]:
    """A lake of so many tables, each with a live file, a removed one and an orphan, and a report of it."""
    store = Counting()
    lake = Lake(settings=own_settings(home), store=store)
    tables = [table_of(f"bronze/t{number}") for number in range(count)]
    for table in tables:
        written(store, table.key)
        store.put(f"{table.key}/orphan", b"1")
    scan(lake, now_ms=now_ms())
    again = Counting()  # of the scan's requests and reads nothing is known
    again._files = store._files
    return replace(lake, store=again), again, tables


def written(store: MemoryStore, key: str) -> LogBuilder:
    """Writes the table's log, and its data."""
    story = LogBuilder(store, key).create().append([("live", 1), ("gone", 1)])
    return story.store_data().delete(["gone"])


def vacuum(facts: LakeFacts, table: Table) -> set[str]:
    """The files of the table that are left."""
    run.vacuum(facts, lambda: nobody, table, mode="INVENTORY")
    return {
        file.name.removeprefix(f"{table.key}/")
        for file in facts.lake.store.list(table.key)
        if "/_delta_log/" not in file.name
    }


@pytest.mark.parametrize("mode", ["FULL", "INVENTORY", "LITE"])
def test_twice_as_many_tables_take_twice_as_many_requests_and_nothing_is_read_twice(
    tmp_path: Path, mode: Any
) -> None:
    asked: dict[int, Counter[str]] = {}
    for count in (4, 8):
        lake, store, tables = lake_of(tmp_path / str(count), count)
        facts = LakeFacts(lake, tables)
        for table in tables:
            assert deleted(run.vacuum(facts, lambda: nobody, table, mode=mode)) == (
                1 if mode == "LITE" else 2
            )
        assert {name: times for name, times in store.reads.items() if times > 1} == {}
        assert sum(name.startswith("bronze/") for name in store.reads) == 3 * count
        asked[count] = store.asked
    assert asked[8].total() <= 2 * asked[4].total(), asked


def test_a_commit_between_vacuums_is_seen_and_no_other_log_is_read_again(tmp_path: Path) -> None:
    lake, store, tables = lake_of(tmp_path, 3)
    facts = LakeFacts(lake, tables)
    assert vacuum(facts, tables[0]) == {"live"}
    store.reads.clear()
    back = add_of("gone", modificationTime=LONG_AGO)
    written(store, tables[1].key).commit("RESTORE", back)
    assert vacuum(facts, tables[1]) == {"live", "gone"}
    of_logs = {name.partition("/_delta_log/")[0] for name in store.reads if "_delta_log" in name}
    assert of_logs == {tables[1].key}
    known = [facts.log(tables[2].key)]
    written(store, tables[2].key).append([("orphan", 1)])
    known.append(facts.log(tables[2].key))
    assert [log and log.facts.snapshot.version for log in known] == [2, 3]
    assert vacuum(facts, tables[2]) == {"live", "orphan"}


@pytest.mark.parametrize(("later_ms", "left"), [(0, {"live"}), (10_000, {"live", "orphan"})])
def test_a_clone_that_is_made_between_two_vacuums_of_a_run_is_seen_ten_seconds_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_ms: int, left: set[str]
) -> None:
    now = now_ms()
    monkeypatch.setattr("lakehouse.vacuum.facts.now_ms", lambda: now)
    lake, store, tables = lake_of(tmp_path, 2)
    facts = LakeFacts(lake, tables)
    vacuum(facts, tables[0])
    borrowed = f"{lake.settings.table_uri(tables[1].key)}/orphan"
    LogBuilder(store, "scratch/clone").create().append([(borrowed, 1)])
    monkeypatch.setattr("lakehouse.vacuum.facts.now_ms", lambda: now + later_ms)
    assert vacuum(facts, tables[1]) == left


def test_a_commit_before_the_guard_was_taken_is_planned_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made before anybody is kept out; what was planned by an older version is planned again."""
    lake, store, [table] = lake_of(tmp_path, 1)

    @contextlib.contextmanager
    def taken(*_: Any, **__: Any) -> Iterator[None]:
        written(store, table.key).append([("orphan", 1)])
        yield

    monkeypatch.setattr(run, "hold", taken)
    outcome = run.vacuum(LakeFacts(lake, [table]), lambda: None, table, mode="INVENTORY")
    assert (outcome.plan.version, outcome.plan.file_count, outcome.spared) == (3, 1, {})
