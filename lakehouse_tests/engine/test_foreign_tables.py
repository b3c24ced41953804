"""The conditions for touching a table that others write. No Spark: each refusal comes before a session is asked for anything."""

from pathlib import Path

import pytest

from lakehouse.core.adoption.adopted_file import adopted_table
from lakehouse.core.errors import Refused
from lakehouse.engine import clock
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.lake_owner import claim, refuse_table_of_another_lake, refuse_unsafe_commits
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.store import DiskStore
from lakehouse_tests.conftest import own_settings
from lakehouse_tests.log_builder import LogBuilder


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake beside which a table lies, which its declaration adopts."""
    LogBuilder(DiskStore(tmp_path / "warehouse"), "sales/orders").create().append(
        [("a", 1), ("b", 1)]
    )
    table = adopted_table("silver/orders", str(tmp_path / "warehouse/sales/orders"))
    return open_lake(own_settings(tmp_path / "home"), tables=[table])


@pytest.mark.parametrize("inside", ["silver/orders", "quarantine/bronze/orders"])
def test_a_table_of_another_lake_is_refused(tmp_path: Path, lake: Lake, inside: str) -> None:
    other = open_lake(own_settings(tmp_path / "other"))
    address = f"{other.settings.root}/{inside}"
    refuse_table_of_another_lake(lake, address, asked="test")
    claim(other, asked="test")
    with pytest.raises(
        Refused,
        match=f"belongs to the lake {other.settings.root}, .*LAKEHOUSE_ROOT={other.settings.root}",
    ):
        refuse_table_of_another_lake(lake, address, asked="test")
    refuse_table_of_another_lake(other, address, asked="test")


def test_a_table_of_another_lake_is_refused_through_a_link(tmp_path: Path, lake: Lake) -> None:
    other = open_lake(own_settings(tmp_path / "other"))
    claim(other, asked="test")
    LogBuilder(other.store, "silver/orders").create()
    (tmp_path / "link").symlink_to(f"{other.settings.root}/silver/orders")
    with pytest.raises(Refused, match=f"belongs to the lake {other.settings.root}"):
        refuse_table_of_another_lake(lake, str(tmp_path / "link"), asked="test")
    (tmp_path / "linked_lake").symlink_to(other.settings.root)
    refuse_table_of_another_lake(other, str(tmp_path / "linked_lake/silver/orders"), asked="test")


def test_nothing_is_committed_while_a_commit_of_others_could_be_lost(lake: Lake) -> None:
    table = adopted_table("silver/orders", lake.elsewhere["silver/orders"])
    for ask in (
        lambda: refuse_unsafe_commits(lake, None, table, asked="test"),
        lambda: compact(lake, None, table),
    ):  # type: ignore[arg-type]
        with pytest.raises(Refused, match='writers = "none"'):
            ask()
    quiet = adopted_table("silver/orders", lake.elsewhere["silver/orders"], writers="none")
    refuse_unsafe_commits(lake, None, quiet, asked="test")  # type: ignore[arg-type]


def test_a_file_of_a_table_elsewhere_has_the_table_s_key_for_a_place(
    tmp_path: Path, lake: Lake
) -> None:
    place = PathResolver(lake)
    uri = lake.elsewhere["silver/orders"]
    (tmp_path / "link").symlink_to(uri)
    assert place(f"file:{uri}/d=1/a") == place(f"{tmp_path}/link/d=1/a") == "silver/orders/d=1/a"
    assert (place(uri), place(f"{lake.settings.root}/gold/t/x"), place(f"{uri}2/a")) == (
        "silver/orders",
        "gold/t/x",
        None,
    )


def test_the_clock_of_a_bucket_elsewhere_is_asked(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = adopted_table("silver/orders", f"s3://{bucket}/orders")
    lake = open_lake(own_settings(tmp_path), tables=[table])
    clock.check_clock(lake, table.key)
    ahead = now_ms() + 6 * 60_000
    monkeypatch.setattr(clock, "now_ms", lambda: ahead)
    monkeypatch.setattr(
        DiskStore, "stat", lambda *_: None
    )  # the lake's own disk has this machine's clock
    with pytest.raises(Refused, match=r"this machine's clock is 3[56][0-9] s off the storage's"):
        clock.check_clock(lake, table.key)
