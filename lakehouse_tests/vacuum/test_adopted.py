"""The vacuum of a table that others write, outside of the lake: what may go, and what nobody here can know. No Spark."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.compact.plan.compaction import plan_table
from lakehouse.declare.adopted_file import adopted_table
from lakehouse.declare.table import Table
from lakehouse.declare.vacuum import VacuumMode
from lakehouse.lake.lake import open_lake
from lakehouse.lake.operations import vacuum_records
from lakehouse.store import DiskStore
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.lake_facts import LakeFacts
from lakehouse.vacuum.plan.vacuum import VacuumPlan
from lakehouse.vacuum.run import Recheck, vacuum
from lakehouse.vacuum.table_facts import plan
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
    orders = (
        LogBuilder(store, "orders")
        .create(partition_by=["d"])
        .append([("d=1/live", 10), ("d=1/gone", 30)])
    )
    LogBuilder(store, "orders/inside").create().append([("theirs", 10)]).store_data().delete(
        ["theirs"]
    )
    orders.store_data()
    store.put("orders/d=1/orphan", b"123")
    orders.delete(["d=1/gone"])
    for path in (tmp_path / "warehouse").rglob("*"):
        os.utime(path, (WRITTEN, WRITTEN))
    return tmp_path / "warehouse"


def planned(home: Path, tables: Sequence[Table], mode: VacuumMode | None = None) -> VacuumPlan:
    """The plan for the first of the tables."""
    found = plan(
        LakeFacts(open_lake(own_settings(home), tables=tables), tables), tables[0], mode=mode
    )
    assert found is not None
    return found


def names(found: VacuumPlan) -> list[str]:
    return [each.name for each in found.candidates]


def test_what_the_log_never_told_of_stays_unless_a_person_says_that_it_is_the_table_s(
    tmp_path: Path, warehouse: Path
) -> None:
    kept = adopted_table(KEY, f"{warehouse}/orders")
    found = planned(tmp_path / "home", [kept])
    assert (found.mode, names(found)) == ("LITE", ["d=1/gone"])
    with pytest.raises(
        Refused,
        match=r'mode FULL: other programs write the table.* unless orphans = "delete"\. Use LITE',
    ):
        planned(tmp_path / "home", [kept], "FULL")
    own = adopted_table(KEY, f"{warehouse}/orders", orphans="delete")
    found = planned(tmp_path / "home", [own])
    assert (found.mode, names(found)) == ("FULL", ["d=1/gone", "d=1/orphan"])


def test_a_log_that_forgot_its_beginning_gives_up_what_it_still_tells(
    tmp_path: Path, warehouse: Path
) -> None:
    orders = (
        LogBuilder(DiskStore(warehouse), "later")
        .create()
        .append([("a", 1), ("b", 1)])
        .delete(["a"])
        .checkpoint()
    )
    orders.append([("c", 1)]).store_data().delete(["b"]).forget_before(3)
    os.utime(warehouse / "later/b", (WRITTEN, WRITTEN))
    assert names(planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/later")])) == ["b"]


def test_what_a_table_of_the_lake_borrows_of_it_stays(tmp_path: Path, warehouse: Path) -> None:
    clone = table_of("gold/clone")
    lake = open_lake(own_settings(tmp_path / "home"))
    LogBuilder(lake.store, clone.key).create().append([(f"file:{warehouse}/orders/d=1/gone", 30)])
    for orphans, left in (("keep", []), ("delete", ["d=1/orphan"])):
        assert (
            names(
                planned(
                    tmp_path / "home",
                    [adopted_table(KEY, f"{warehouse}/orders", orphans=orphans), clone],
                )
            )
            == left
        )


def test_what_a_clone_reads_of_an_adopted_table_is_outside_of_the_inventory_and_not_missing(
    tmp_path: Path, warehouse: Path
) -> None:
    tables = [adopted_table(KEY, f"{warehouse}/orders"), table_of("gold/clone")]
    lake = open_lake(own_settings(tmp_path / "home"), tables=tables)
    LogBuilder(lake.store, "gold/clone").create().append(
        [(f"file:{warehouse}/orders/d=1/live", 10)]
    )
    scan(lake, now_ms=now_ms())
    found = {table.table: table for table in reconciled(lake, tables, now_ms=now_ms()).tables}
    assert found["gold/clone"].missing == ()


def test_what_another_adopted_table_borrows_of_it_stays(tmp_path: Path, warehouse: Path) -> None:
    LogBuilder(DiskStore(warehouse), "clone").create().append(
        [(f"file:{warehouse}/orders/d=1/gone", 30)]
    )
    clone = adopted_table("gold/clone", f"{warehouse}/clone")
    assert (
        names(planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders"), clone])) == []
    )


def test_what_was_borrowed_goes_once_the_clone_is_gone(tmp_path: Path, warehouse: Path) -> None:
    """No sweep looks for it: the log alone decides, and a later vacuum reads only what was removed since."""
    LogBuilder(DiskStore(warehouse), "clone").create().append(
        [(f"file:{warehouse}/orders/d=1/gone", 30)]
    )
    tables = [
        adopted_table(KEY, f"{warehouse}/orders"),
        adopted_table("gold/clone", f"{warehouse}/clone"),
    ]
    run = LakeFacts(open_lake(own_settings(tmp_path / "home"), tables=tables), tables)
    done = vacuum(run, lambda: pytest.fail("no session is needed"), tables[0])
    [record] = vacuum_records(run.lake, KEY)
    assert (done.plan.candidates, record.kept, record.is_complete) == (
        (),
        ["d=1/gone"],
        True,
    )
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
    assert names(
        planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders"), later])
    ) == ["d=1/gone"]


@pytest.mark.parametrize("folder", ["clone", "disk/clone"])
def test_nothing_goes_while_the_storage_of_an_adopted_table_may_be_away(
    tmp_path: Path, warehouse: Path, folder: str
) -> None:
    """The folder in which a disk was mounted is there, and is empty."""
    (warehouse / folder).parent.mkdir(exist_ok=True)
    if folder == "clone":
        (warehouse / folder).mkdir()
    away = adopted_table("gold/clone", f"{warehouse}/{folder}")
    with pytest.raises(
        Refused,
        match=r"gold/clone cannot be read: there is no Delta table at .*/clone\. Either .*or remove the table from the declarations",
    ):
        planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders"), away])


def test_a_broken_log_of_a_table_outside_the_lake_is_not_told_to_move_out_of_it(
    tmp_path: Path, warehouse: Path
) -> None:
    LogBuilder(DiskStore(warehouse), "clone").create()
    (warehouse / f"clone/_delta_log/{0:020}.json").write_text("{")
    clone = adopted_table("gold/clone", f"{warehouse}/clone")
    with pytest.raises(Refused, match="either repair gold/clone, or remove it from the") as refusal:
        planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders"), clone])
    assert "out of the lake" not in str(refusal.value)


@pytest.mark.parametrize("make", [_make_nothing, _make_csv])
def test_nothing_goes_while_an_adopted_table_is_not_where_a_vacuum_found_it(
    tmp_path: Path, warehouse: Path, make: Callable[[Path], None]
) -> None:
    LogBuilder(DiskStore(warehouse), "clone").create().append(
        [(f"file:{warehouse}/orders/d=1/gone", 30)]
    )
    tables = [
        adopted_table(KEY, f"{warehouse}/orders"),
        adopted_table("gold/clone", f"{warehouse}/clone"),
    ]
    run = LakeFacts(open_lake(own_settings(tmp_path / "home"), tables=tables), tables)
    vacuum(run, lambda: pytest.fail("no session is needed"), tables[0])
    (warehouse / "clone").rename(warehouse / "clone_v2")
    make(warehouse / "clone")
    slip = adopted_table("gold/clone", f"{warehouse}/clnoe")
    for other in (tables[1], slip):
        with pytest.raises(
            Refused,
            match=r"gold/clone cannot be read: there is no Delta table at .* found the table at: .*/warehouse/clone",
        ):
            planned(tmp_path / "home", [tables[0], other])


def test_a_clone_that_is_made_at_the_place_of_a_declared_table_before_a_deletion_is_seen(
    tmp_path: Path, warehouse: Path
) -> None:
    tables = [
        adopted_table(KEY, f"{warehouse}/orders"),
        adopted_table("gold/clone", f"{warehouse}/clone"),
    ]
    run = LakeFacts(open_lake(own_settings(tmp_path / "home"), tables=tables), tables)
    run.read(tables[0])
    LogBuilder(DiskStore(warehouse), "clone").create().append(
        [(f"file:{warehouse}/orders/d=1/gone", 30)]
    )
    run.ask_before_deletion(KEY)
    assert run.uses.borrowed == {f"{KEY}/d=1/gone"}


def test_folders_of_a_table_s_own_files_are_not_listed_for_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [(f"{number:03x}/part", 1) for number in range(1_000)]
    LogBuilder(DiskStore(tmp_path / "warehouse"), "orders").create().append(parts).store_data()
    asked, folders = list[str](), DiskStore.folders
    monkeypatch.setattr(
        DiskStore,
        "folders",
        lambda self, prefix, **how: (asked.append(prefix), folders(self, prefix, **how))[1],
    )
    planned(tmp_path / "home", [adopted_table(KEY, f"{tmp_path}/warehouse/orders")])
    assert 0 < len(asked) < 20


@pytest.mark.parametrize("orphans", ["keep", "delete"])
def test_what_a_table_in_its_own_folder_borrows_stays(
    tmp_path: Path, warehouse: Path, orphans: Any
) -> None:
    LogBuilder(DiskStore(warehouse), "orders/a/clone").create().append(
        [(f"{warehouse}/orders/d=1/gone", 30)]
    )
    found = planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders", orphans=orphans)])
    assert "d=1/gone" not in names(found)


@pytest.mark.parametrize("orphans", ["keep", "delete"])
def test_files_of_an_old_table_in_a_partition_s_folder_stay_though_its_first_commits_are_gone(
    tmp_path: Path, warehouse: Path, orphans: Any
) -> None:
    inner = (
        LogBuilder(DiskStore(warehouse), "orders/d=1")
        .create()
        .append([("gone", 30), ("x", 1)])
        .delete(["x"])
    )
    inner.checkpoint().forget_before(2).store.put(
        "orders/d=1/_delta_log/_last_checkpoint", b'{"version":2}'
    )
    table = adopted_table(KEY, f"{warehouse}/orders", orphans=orphans)
    run = LakeFacts(open_lake(own_settings(tmp_path / "home"), tables=[table]), [table])
    run.read(table)
    found = planned(tmp_path / "home", [table], "LITE")
    assert names(found) == ["d=1/gone"]
    spared = dict[str, str]()
    assert Recheck(run, found, spared).still_deletable(found.candidates) == []
    assert spared == {"d=1/gone": "a table was created in its folder meanwhile"}


def test_what_a_deep_clone_borrows_stays_in_a_lake_of_adopted_tables_alone(
    tmp_path: Path, warehouse: Path
) -> None:
    lake = open_lake(own_settings(tmp_path / "home"))
    LogBuilder(lake.store, "gold/team/clone").create().append(
        [(f"{warehouse}/orders/d=1/gone", 30)]
    )
    assert names(planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders")])) == []


def test_a_file_that_was_written_after_its_name_was_removed_is_none_that_the_log_told_of(
    tmp_path: Path, warehouse: Path
) -> None:
    os.utime(warehouse / "orders/d=1/gone", (LONG_AGO / 1_000, LONG_AGO / 1_000))
    assert names(planned(tmp_path / "home", [adopted_table(KEY, f"{warehouse}/orders")])) == []


def test_nothing_goes_while_a_table_of_the_lake_is_hidden_behind_the_key_of_one_elsewhere(
    tmp_path: Path, warehouse: Path
) -> None:
    lake = open_lake(own_settings(tmp_path / "home"))
    LogBuilder(lake.store, "gold/events").create().append([("a", 1)])
    LogBuilder(lake.store, KEY).create().append([(f"file:{lake.settings.root}/gold/events/a", 1)])
    with pytest.raises(
        Refused,
        match=rf"there are also files at {lake.settings.root}/{KEY}\. .*Use another key for {warehouse}/orders",
    ):
        planned(
            tmp_path / "home", [table_of("gold/events"), adopted_table(KEY, f"{warehouse}/orders")]
        )
    own = adopted_table(KEY, f"{lake.settings.root}/{KEY}")
    with pytest.raises(
        Broken, match=r"storage lacks 1 of the 1 files"
    ):  # it was planned: nothing is hidden
        planned(tmp_path / "home", [table_of("gold/events"), own], "FULL")


def test_under_a_feature_that_is_not_known_nothing_is_planned(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "warehouse")
    LogBuilder(store, "t").create(features=["newFeature"]).append([("a", 1), ("b", 1)]).delete(
        ["a"]
    )
    table = adopted_table(KEY, str(tmp_path / "warehouse/t"))
    with pytest.raises(
        Refused, match="table feature newFeature is unknown, so this program cannot know"
    ):
        planned(tmp_path / "home", [table])
    facts = open_lake(own_settings(tmp_path / "home"), tables=[table]).facts(KEY)
    assert facts is not None
    with pytest.raises(Refused, match="table feature newFeature is unknown"):
        plan_table(table, facts.snapshot, facts.history, now_ms=0)
