"""The conditions for touching a table that others write. No Spark: each refusal comes before a session is asked for anything."""

from pathlib import Path

import pytest

from lakehouse.adopt.command import refuse_adoption
from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import adopted_table
from lakehouse.lake import lease as check_clock
from lakehouse.lake.lake import Lake, PathResolver, open_lake
from lakehouse.lake.lease import hold
from lakehouse.store import DiskStore
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
    refuse_adoption(lake, address)
    with hold(other, None, "silver/orders", owner="test"):
        pass
    (tmp_path / "link").symlink_to(other.settings.root)
    for each in (address, f"{tmp_path}/link/{inside}"):
        message = (
            f"belongs to the lake {other.settings.root},.*LAKEHOUSE_ROOT={other.settings.root}"
        )
        with pytest.raises(Refused, match=message):
            refuse_adoption(lake, each)
    refuse_adoption(other, address)


def test_a_file_of_a_table_elsewhere_lies_at_the_table_s_key(tmp_path: Path, lake: Lake) -> None:
    place = PathResolver(lake)
    uri = lake.elsewhere["silver/orders"]
    (tmp_path / "link").symlink_to(uri)
    assert place(f"file:{uri}/d=1/a") == place(f"{tmp_path}/link/d=1/a") == "silver/orders/d=1/a"
    assert (place(uri), place(f"{lake.settings.root}/gold/t/x")) == ("silver/orders", "gold/t/x")
    assert place(f"{uri}2/a") is None


def test_the_clock_of_a_bucket_elsewhere_is_asked(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = adopted_table("silver/orders", f"s3://{bucket}/orders")
    lake = open_lake(own_settings(tmp_path), tables=[table])
    check_clock.check_clock(lake, table.key)
    ahead = now_ms() + 6 * 60_000
    monkeypatch.setattr(check_clock, "now_ms", lambda: ahead)
    # The lake's own disk has this machine's clock.
    monkeypatch.setattr(DiskStore, "stat", lambda *_: None)
    message = r"this machine's clock and the storage's clock differ by -?3[56][0-9] s"
    with pytest.raises(Refused, match=message):
        check_clock.check_clock(lake, table.key)
