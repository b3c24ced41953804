"""The vacuum of a table that others write, outside of the lake: what may go, and what nobody here can know. No Spark."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.operation import VacuumMode
from lakehouse.declare.adopted import adopted_table
from lakehouse.declare.table import Table
from lakehouse.lake.lake import open_lake
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.store import DiskStore
from lakehouse.vacuum.facts import LakeFacts, plan
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.plan.vacuum import VacuumPlan
from lakehouse.vacuum.run import Recheck, vacuum
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import START_MS, LogBuilder
from lakehouse_tests.support.faults import LONG_AGO
from lakehouse_tests.support.reports import reconciled
from lakehouse_tests.support.vacuums import table_of

KEY = "silver/orders"
WRITTEN = START_MS / 1_000 - 60  # before the first commit


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A table of others with a removed file and an orphan, and a table of yet others inside its folder; all older than any retention."""
    store = DiskStore(tmp_path / "warehouse")
    orders = LogBuilder(store, "orders").create(partition_by=["d"])
    orders.append([("d=1/live", 10), ("d=1/gone", 30)])
    inside = LogBuilder(store, "orders/inside").create().append([("theirs", 10)])
    inside.store_data().delete(["theirs"])
    orders.store_data()
    store.put("orders/d=1/orphan", b"123")
    orders.delete(["d=1/gone"])
    for path in (tmp_path / "warehouse").rglob("*"):
        os.utime(path, (WRITTEN, WRITTEN))
    return tmp_path / "warehouse"


def planned(home: Path, tables: Sequence[Table], mode: VacuumMode | None = None) -> VacuumPlan:
    """The plan for the first of the tables."""
    found = plan(facts_of(home, tables), tables[0], mode=mode)
    assert found is not None
    return found


def facts_of(home: Path, tables: Sequence[Table]) -> LakeFacts:
    return LakeFacts(open_lake(own_settings(home), tables=tables), tables)


def of_others(warehouse: Path, **more: Any) -> Table:
    return adopted_table(KEY, f"{warehouse}/orders", **more)


def cloned(warehouse: Path) -> list[Table]:
    """The table, and one next to it that borrows its removed file."""
    clone = LogBuilder(DiskStore(warehouse), "clone").create()
    clone.append([(f"file:{warehouse}/orders/d=1/gone", 30)])
    return [of_others(warehouse), adopted_table("gold/clone", f"{warehouse}/clone")]


def names(found: VacuumPlan) -> list[str]:
    return [each.name for each in found.candidates]


def test_what_the_log_never_told_of_stays_unless_a_person_says_that_it_is_the_table_s(
    tmp_path: Path, warehouse: Path
) -> None:
    kept = of_others(warehouse)
    found = planned(tmp_path / "home", [kept])
    assert (found.mode, names(found)) == ("LITE", ["d=1/gone"])
    message = r'mode FULL: other programs write the table.* unless orphans = "delete"\. Use LITE'
    with pytest.raises(Refused, match=message):
        planned(tmp_path / "home", [kept], "FULL")
    own = of_others(warehouse, orphans="delete")
    found = planned(tmp_path / "home", [own])
    assert (found.mode, names(found)) == ("FULL", ["d=1/gone", "d=1/orphan"])


def test_a_log_that_forgot_its_beginning_gives_up_the_rest(tmp_path: Path, warehouse: Path) -> None:
    orders = LogBuilder(DiskStore(warehouse), "later").create().append([("a", 1), ("b", 1)])
    orders.delete(["a"]).checkpoint()
    orders.append([("c", 1)]).store_data().delete(["b"]).forget_before(3)
    os.utime(warehouse / "later/b", (WRITTEN, WRITTEN))
    run = facts_of(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/later")])
    found = planned(tmp_path / "home", run.declared)
    recheck = Recheck(run, found, {})
    assert [each.name for each in recheck.still_deletable(found.candidates)] == ["b"]
    assert (names(found), recheck.gone) == (["a", "b"], {"a"})


# Where the table lies that borrows files: its key below the lake, or its folder beside the table of others.
BORROWERS = {
    "a table of the lake": "gold/clone",
    "a table that the lake does not know": "gold/team/clone",
    "another adopted table": "/clone",
    "a table in its own folder": "/orders/a/clone",
}


@pytest.mark.parametrize("orphans", ["keep", "delete"])
@pytest.mark.parametrize("where", BORROWERS)
def test_what_another_table_borrows_of_it_stays(
    tmp_path: Path, warehouse: Path, where: str, orphans: Any
) -> None:
    tables = [of_others(warehouse, orphans=orphans)]
    place = BORROWERS[where]
    lake = open_lake(own_settings(tmp_path / "home"))
    store = DiskStore(warehouse) if place[0] == "/" else lake.store
    clone = LogBuilder(store, place.removeprefix("/")).create()
    clone.append([(f"file:{warehouse}/orders/d=1/gone", 30)])
    if where == "a table of the lake":
        tables.append(table_of(place))
    if where == "another adopted table":
        tables.append(adopted_table("gold/clone", f"{warehouse}{place}"))
    left = ["d=1/orphan"] if orphans == "delete" else []
    assert names(planned(tmp_path / "home", tables)) == left


def test_what_a_clone_reads_of_an_adopted_table_is_outside_of_the_inventory_and_not_missing(
    tmp_path: Path, warehouse: Path
) -> None:
    tables = [of_others(warehouse), table_of("gold/clone")]
    lake = open_lake(own_settings(tmp_path / "home"), tables=tables)
    clone = LogBuilder(lake.store, "gold/clone").create()
    clone.append([(f"file:{warehouse}/orders/d=1/live", 10)])
    scan(lake, now_ms=now_ms())
    found = {table.table: table for table in reconciled(lake, tables, now_ms=now_ms()).tables}
    assert found["gold/clone"].missing == ()


def test_what_was_borrowed_goes_once_the_clone_is_gone(tmp_path: Path, warehouse: Path) -> None:
    """No sweep looks for it: the log alone decides, and a later vacuum reads only what was removed since."""
    tables = cloned(warehouse)
    run = facts_of(tmp_path / "home", tables)
    done = vacuum(run, lambda: pytest.fail("no session is needed"), tables[0])
    [record] = vacuum_records(run.lake, KEY)
    assert (done.plan.candidates, record.kept, record.is_complete) == ((), ["d=1/gone"], True)
    assert names(planned(tmp_path / "home", tables[:1])) == ["d=1/gone"]


def _make_nothing(folder: Path) -> None:
    """No folder of the table, in a folder of others."""


def _make_csv(folder: Path) -> None:
    (folder / "year").mkdir(parents=True)
    (folder / "year/1.csv").write_text("a")


@pytest.mark.parametrize("make", [_make_nothing, _make_csv])
def test_a_table_that_was_not_made_yet_or_is_none_of_delta_holds_nothing_back(
    tmp_path: Path, warehouse: Path, make: Callable[[Path], None]
) -> None:
    make(warehouse / "later")
    later = adopted_table("gold/later", f"{warehouse}/later")
    tables = [of_others(warehouse), later]
    assert names(planned(tmp_path / "home", tables)) == ["d=1/gone"]


@pytest.mark.parametrize("folder", ["clone", "disk/clone"])
def test_nothing_goes_while_the_storage_of_an_adopted_table_may_be_away(
    tmp_path: Path, warehouse: Path, folder: str
) -> None:
    """The folder in which a disk was mounted is there, and is empty."""
    (warehouse / folder).parent.mkdir(exist_ok=True)
    if folder == "clone":
        (warehouse / folder).mkdir()
    away = adopted_table("gold/clone", f"{warehouse}/{folder}")
    message = r"gold/clone cannot be read: there is no Delta table at .*/clone\. Either .*or remove the table from the declarations"
    with pytest.raises(Refused, match=message):
        planned(tmp_path / "home", [of_others(warehouse), away])


@pytest.mark.parametrize("make", [_make_nothing, _make_csv])
def test_nothing_goes_while_an_adopted_table_is_not_where_a_vacuum_found_it(
    tmp_path: Path, warehouse: Path, make: Callable[[Path], None]
) -> None:
    tables = cloned(warehouse)
    run = facts_of(tmp_path / "home", tables)
    vacuum(run, lambda: pytest.fail("no session is needed"), tables[0])
    (warehouse / "clone").rename(warehouse / "clone_v2")
    make(warehouse / "clone")
    slip = adopted_table("gold/clone", f"{warehouse}/clnoe")
    for other in (tables[1], slip):
        message = r"gold/clone cannot be read: there is no Delta table at .* found the table at: .*/warehouse/clone"
        with pytest.raises(Refused, match=message):
            planned(tmp_path / "home", [tables[0], other])


@pytest.mark.parametrize("orphans", ["keep", "delete"])
def test_files_of_an_old_table_in_a_partition_s_folder_stay_though_its_first_commits_are_gone(
    tmp_path: Path, warehouse: Path, orphans: Any
) -> None:
    inner = LogBuilder(DiskStore(warehouse), "orders/d=1").create().append([("gone", 30), ("x", 1)])
    inner.delete(["x"])
    mark = "orders/d=1/_delta_log/_last_checkpoint"
    inner.checkpoint().forget_before(2).store.put(mark, b'{"version":2}')
    table = of_others(warehouse, orphans=orphans)
    run = facts_of(tmp_path / "home", [table])
    run.read(table.key)
    found = planned(tmp_path / "home", [table], "LITE")
    assert names(found) == ["d=1/gone"]
    spared = dict[str, str]()
    assert Recheck(run, found, spared).still_deletable(found.candidates) == []
    assert spared == {"d=1/gone": "a table was created in its folder meanwhile"}


def test_a_file_written_after_its_removal_is_not_the_log_s(tmp_path: Path, warehouse: Path) -> None:
    os.utime(warehouse / "orders/d=1/gone", (LONG_AGO / 1_000, LONG_AGO / 1_000))
    run = facts_of(tmp_path / "home", [of_others(warehouse)])
    found, spared = planned(tmp_path / "home", [of_others(warehouse)]), dict[str, str]()
    assert names(found) == ["d=1/gone"]
    assert Recheck(run, found, spared).still_deletable(found.candidates) == []
    assert spared == {"d=1/gone": "it was written again after it was listed"}


def test_nothing_goes_while_a_key_elsewhere_hides_a_table(tmp_path: Path, warehouse: Path) -> None:
    lake = open_lake(own_settings(tmp_path / "home"))
    LogBuilder(lake.store, "gold/events").create().append([("a", 1)])
    LogBuilder(lake.store, KEY).create().append([(f"file:{lake.settings.root}/gold/events/a", 1)])
    message = rf"there are also files at {lake.settings.root}/{KEY}\. .*Use another key for {warehouse}/orders"
    tables = [table_of("gold/events"), of_others(warehouse)]
    with pytest.raises(Refused, match=message):
        planned(tmp_path / "home", tables)
    own = adopted_table(KEY, f"{lake.settings.root}/{KEY}")
    # It was planned: nothing is hidden.
    with pytest.raises(Broken, match=r"storage lacks 1 of the 1 files"):
        planned(tmp_path / "home", [table_of("gold/events"), own], "FULL")
