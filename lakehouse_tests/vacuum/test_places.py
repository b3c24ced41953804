"""Files that another table or a landing names by another way to the same place: links, `..`, mounts, odd spellings. No Spark."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.table import Append, Landing, Table
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.vacuum.facts import LakeFacts
from lakehouse.vacuum.inventory.plan import TableShares
from lakehouse.vacuum.inventory.run import scan
from lakehouse.vacuum.run import Recheck
from lakehouse_tests import log_builder
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.support.faults import (
    HOUR,
    KEY,
    NOW,
    PAST,
    TABLE,
    age,
    paths,
    planned,
    report,
    story_of,
)
from lakehouse_tests.support.reports import reconciled
from lakehouse_tests.support.vacuums import table_of


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The lake of the faults, below a root that is a symbolic link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    lake = open_lake(own_settings(tmp_path, LAKEHOUSE_ROOT=str(tmp_path / "link/lake")))
    story_of(lake)
    age(lake)
    return lake


# How a clone may spell `d=1/orphan` of the table; `{disk}` is the folder that `{link}` leads to, and `{nowhere}` is on no disk.
SPELLED = {
    "the root's spelling": "file:{link}/lake/bronze/t/d=1/orphan",
    "the folder behind the link": "file:{disk}/lake/bronze/t/d=1/orphan",
    "three slashes": "file://{disk}/lake/bronze/t/d=1/orphan",
    "no scheme": "{disk}/lake/bronze/t/d=1/orphan",
    "two dots": "file:{link}/lake/silver/../bronze/t/d=1/orphan",
    "two dots above the root": "file:{disk}/other/../lake/bronze/t/d=1/orphan",
    "empty parts and single dots": "file:{link}//lake/./bronze/t//d=1/orphan",
    "two dots in a relative path": "../../bronze/t/d=1/orphan",
    "a link to the partition": "file:{disk}/partition/orphan",
    "a link to the file": "file:{disk}/file",
    "a mount that this machine does not have": "file:{nowhere}/t/d=1/orphan",
    "the path within another container": "/{nowhere}/lake/bronze/t/d=1/orphan",
    "an alias of a bucket": "s3a://alias-of-a-bucket/lake/bronze/t/d=1/orphan",
}


def spelled(lake: Lake, text: str) -> str:
    link = Path(lake.settings.root).parent
    disk = link.resolve()
    for name, to in (("partition", f"lake/{KEY}/d=1"), ("file", f"lake/{KEY}/d=1/orphan")):
        if not (disk / name).exists():
            (disk / name).symlink_to(disk / to)
    return text.format(link=link, disk=disk, nowhere="/nowhere/at/all")


def scanned(lake: Lake) -> dict[str, TableShares]:
    """The tables by a scan of now."""
    scan(lake, now_ms=NOW)
    return {table.table: table for table in reconciled(lake, now_ms=NOW).tables}


@pytest.mark.parametrize(
    ("mode", "is_old"), [("FULL", False), ("INVENTORY", False), ("FULL", True)]
)
@pytest.mark.parametrize("text", SPELLED.values(), ids=SPELLED)
def test_what_a_clone_or_an_older_version_of_it_reads_stays_however_it_spells_the_path(
    lake: Lake, text: str, mode: str, is_old: bool
) -> None:
    path = spelled(lake, text)
    clone = LogBuilder(lake.store, "silver/clone").create().append([(path, 3)])
    if is_old:
        clone.delete([path])
    age(lake)
    report(lake)
    assert paths(planned(lake, mode)) == ["d=1/gone"]


@pytest.mark.parametrize("where", ["disk", "nowhere"])
def test_a_table_that_names_its_own_files_by_another_way_keeps_them(lake: Lake, where: str) -> None:
    root = Path(lake.settings.root).resolve() if where == "disk" else Path("/nowhere/lake")
    LogBuilder(lake.store, "bronze/u").create().append([(f"file:{root}/bronze/u/x", 3)])
    for name in ("x", "orphan"):
        lake.store.put(f"bronze/u/{name}", b"123")
    age(lake)
    assert paths(planned(lake, "FULL", table_of("bronze/u"))) == ["orphan"]


@pytest.mark.parametrize(
    "path", ["x", "file:{disk}/bronze/u/x", "../u/x", "file:/nowhere/lake/bronze/u/x"]
)
@pytest.mark.parametrize(
    ("retention", "left"), [("interval 30 days", ["orphan"]), ("interval 1 day", ["orphan", "x"])]
)
def test_what_an_older_version_reads_by_another_way_stays_though_its_tombstone_is_gone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, path: str, retention: str, left: list[str]
) -> None:
    monkeypatch.setattr(log_builder, "START_MS", NOW - 48 * HOUR)
    spelt = path.format(disk=Path(lake.settings.root).resolve())
    story = LogBuilder(lake.store, "bronze/u").create()
    story.set_properties(delta__deletedFileRetentionDuration="interval 1 hour")
    story.append([(spelt, 3)]).delete([spelt]).append([("live", 1)]).checkpoint(tombstones=False)
    story.set_properties(delta__deletedFileRetentionDuration=retention)
    for name in ("x", "orphan", "live"):
        lake.store.put(f"bronze/u/{name}", b"1" * (1 if name == "live" else 3))
    age(lake)
    assert paths(planned(lake, "FULL", table_of("bronze/u"))) == left


def test_what_a_table_reads_through_a_link_in_its_own_folder_stays(lake: Lake) -> None:
    LogBuilder(lake.store, "silver/u").create().append([("d=1/orphan", 3)])
    root = Path(lake.settings.root)
    (root / "silver/u/d=1").symlink_to(root / KEY / "d=1")
    age(lake)
    assert paths(planned(lake, "FULL")) == ["d=1/gone"]


@pytest.mark.parametrize("mode", ["LITE", "INVENTORY", "FULL"])
def test_what_a_table_around_it_reads_stays_and_is_not_missing(lake: Lake, mode: Any) -> None:
    """CONVERT makes a table of a folder with tables in it: their files are in its own folder, and in theirs."""
    around = LogBuilder(lake.store, "bronze").create()
    around.append([("t/d=1/orphan", 3), ("t/d=1/gone", 30)]).delete(["t/d=1/gone"])
    age(lake)
    report(lake)
    assert paths(planned(lake, mode)) == []
    found = scanned(lake)
    assert found["bronze"].missing == ()
    counts = {share.part.name: share.file_count for share in found[KEY].shares if share.part}
    assert counts["LENT"] == 2


def test_a_table_at_the_root_of_the_lake_holds_back_every_vacuum(lake: Lake) -> None:
    LogBuilder(lake.store, "x").create().append([(f"{KEY}/d=1/orphan", 3)])
    (Path(lake.settings.root) / "x/_delta_log").rename(Path(lake.settings.root) / "_delta_log")
    message = r"is itself a Delta table, which may read files of every table .*\. Move the table at the root"
    with pytest.raises(Refused, match=message):
        planned(lake, "FULL")


def test_what_a_clone_reads_of_a_table_whose_folder_is_a_link_stays(lake: Lake) -> None:
    root = Path(lake.settings.root)
    (root / "shared").mkdir()
    (root / KEY).rename(root / "shared/u")
    (root / KEY).symlink_to(root / "shared/u")
    LogBuilder(lake.store, "gold/clone").create().append([(f"file:{root}/{KEY}/d=1/orphan", 3)])
    lake.store.put("shared/u/incoming/batch.json", b"{}")
    age(lake)
    assert paths(planned(lake, "FULL", TABLE, landed("shared/u/incoming/"))) == ["d=1/gone"]


@pytest.mark.parametrize("where", ["lake/cold", "outside"])
def test_a_linked_partition_is_neither_missing_nor_in_the_way(lake: Lake, where: str) -> None:
    folder, to = Path(lake.settings.root) / KEY / "d=2", Path(lake.settings.root).parent / where
    folder.rename(to)
    folder.symlink_to(to)
    assert paths(planned(lake, "FULL")) == PAST
    found = scanned(lake)[KEY]
    outside = where == "outside"
    assert found.missing == ()
    (to / "live").unlink()
    found = scanned(lake)[KEY]
    assert found.missing == (() if outside else ("cold/live",))


@pytest.mark.parametrize("mode", ["LITE", "FULL"])
def test_what_a_removed_name_reaches_through_a_link_stays(lake: Lake, mode: Any) -> None:
    LogBuilder(lake.store, "silver/u").create().append([("d=1/gone", 3)])
    other = LogBuilder(lake.store, "silver/t").create(partition_by=["d"]).append([("d=1/gone", 3)])
    lake.store.put("silver/u/d=1/gone", b"123")
    root = Path(lake.settings.root)
    (root / "silver/t/d=1").symlink_to(root / "silver/u/d=1")
    other.delete(["d=1/gone"])
    age(lake)
    table, spared = table_of("silver/t"), dict[str, str]()
    found = planned(lake, mode, table)
    assert paths(found) == (["d=1/gone"] if mode == "LITE" else [])
    assert Recheck(LakeFacts(lake, [table]), found, spared).still_deletable(found.candidates) == []
    link = "its folder is a link out of the table's folder"
    assert spared == dict.fromkeys(paths(found), link)


def landed(prefix: str) -> Table:
    source = Landing(prefix=prefix, format="json", schema="id BIGINT")
    return Table(key="bronze/landed", source=source, write=Append())


@pytest.mark.parametrize("mode", ["FULL", "INVENTORY"])
def test_landed_files_stay_where_the_landing_is_a_link_into_a_table(lake: Lake, mode: Any) -> None:
    lake.store.put(f"{KEY}/incoming/batch.json", b"{}")
    root = Path(lake.settings.root)
    (root / "landing").mkdir()
    (root / "landing/orders").symlink_to(root / KEY / "incoming")
    age(lake)
    report(lake)
    assert paths(planned(lake, mode, TABLE, landed("landing/orders/"))) == PAST


def test_a_stray_key_that_looks_like_a_log_stops_no_vacuum_and_its_folder_stays(lake: Lake) -> None:
    lake.store.put(f"{KEY}/d=1/_delta_log/x", b"1")
    age(lake)
    report(lake)
    for mode in ("FULL", "INVENTORY", "LITE"):
        assert paths(planned(lake, mode)) == []


@pytest.mark.parametrize(
    "path", ["d=1/%00", "..", ".", "d=1/..", "../../../etc/passwd", "%2E%2E/x"]
)
def test_a_path_that_names_no_file_of_the_table_stops_no_vacuum(lake: Lake, path: str) -> None:
    story = LogBuilder(lake.store, "bronze/u").create().append([(path, 3), ("old", 1), ("live", 1)])
    for name in ("old", "live"):
        lake.store.put(f"bronze/u/{name}", b"1")
    story.delete([path, "old"])
    age(lake)
    for mode in ("FULL", "LITE"):
        assert paths(planned(lake, mode, table_of("bronze/u"))) == ["old"]


@pytest.mark.parametrize("name", ["./odd", "d=1/./odd", "d=1//odd", "x/../odd", "./d=1/../odd"])
def test_a_name_spelt_oddly_in_the_log_is_the_file_that_delta_reads(lake: Lake, name: str) -> None:
    plain = "odd" if name.endswith("../odd") or name == "./odd" else "d=1/odd"
    for key, part in (("bronze/u", "removed"), ("bronze/v", "live")):
        story = LogBuilder(lake.store, key).create().append([(name, 3), ("live", 1)])
        lake.store.put(f"{key}/{plain}", b"123")
        lake.store.put(f"{key}/live", b"1")
        if part == "removed":
            story.delete([name])
    age(lake)
    removed, live = table_of("bronze/u"), table_of("bronze/v")
    for mode in ("FULL", "LITE"):
        found = planned(lake, mode, removed, live)
        [each] = found.candidates
        assert (each.name, each.part.name) == (plain, "TOMBSTONED_PAST")
        assert paths(planned(lake, mode, live, removed)) == []
