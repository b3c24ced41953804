"""The conditions for touching a table that others write. No Spark: each refusal comes before a session is asked for anything."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakehouse.core.adoption.adopted_file import adopted_table
from lakehouse.core.errors import Refused
from lakehouse.engine import clock
from lakehouse.engine.clock import now_ms
from lakehouse.engine.commit_safety import (
    claim,
    refuse_table_of_another_lake,
    refuse_unsafe_commits,
    spark_commits_conditionally,
)
from lakehouse.engine.compaction.run import compact
from lakehouse.engine.lake import Lake, open_lake
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.store import DiskStore, S3Store
from lakehouse.runtime.log_store import remember_conditions
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
        match=f"belongs to the lake {other.settings.root} .*LAKEHOUSE_ROOT={other.settings.root}",
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


@pytest.mark.parametrize(
    ("writers", "way_out"),
    [
        ("unknown", 'writers = "none"'),
        ("conditional", "lakehouse config shows the reason.*restart"),
    ],
)
def test_nothing_is_committed_while_a_commit_of_others_could_be_lost(
    tmp_path: Path, writers: Any, way_out: str
) -> None:
    """Nobody has asked this Connect server yet how it commits."""
    uri, settings = str(tmp_path / "orders"), own_settings(tmp_path, LAKEHOUSE_SPARK="sc://host")
    LogBuilder(DiskStore(tmp_path), "orders").create()
    table = adopted_table("silver/orders", uri, writers=writers, engine="spark")
    lake = open_lake(settings, tables=[table])
    for ask in (
        lambda: refuse_unsafe_commits(lake, None, table, asked="test"),  # type: ignore[arg-type]
        lambda: compact(lake, None, table),  # type: ignore[arg-type]
    ):
        with pytest.raises(Refused, match=way_out):
            ask()
    quiet = adopted_table("silver/orders", uri, writers="none")
    refuse_unsafe_commits(lake, None, quiet, asked="test")  # type: ignore[arg-type]


def test_the_server_of_a_table_on_s3_is_asked_once_per_home(tmp_path: Path, bucket: str) -> None:
    """It is no server of AWS, and the lake is on disk: the next driver commits as the answer allows."""
    table = adopted_table("silver/orders", f"s3://{bucket}/orders")
    lake = open_lake(own_settings(tmp_path), tables=[table])
    elsewhere = replace(lake, settings=replace(lake.settings, spark="sc://host"))
    assert not spark_commits_conditionally(lake, table.key)
    with pytest.raises(Refused, match='writers = "none"'):
        refuse_unsafe_commits(elsewhere, None, table, asked="test")  # type: ignore[arg-type]
    assert spark_commits_conditionally(lake, table.key)
    assert [*S3Store(bucket, "").walk("")] == []
    remember_conditions(lake.settings, f"s3://{bucket}", is_honoured=False)
    with pytest.raises(Refused, match='writers = "none"'):
        refuse_unsafe_commits(lake, None, table, asked="test")  # type: ignore[arg-type]


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
    with pytest.raises(
        Refused, match=r"this machine's clock and the storage's clock differ by -?3[56][0-9] s"
    ):
        clock.check_clock(lake, table.key)
