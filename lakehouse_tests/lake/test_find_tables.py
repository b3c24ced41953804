"""Tables below an address: each once, none inside another's folders, and no more listings than are allowed."""

import pytest

from lakehouse.base.errors import Refused
from lakehouse.declare.adopted import adopted_table
from lakehouse.declare.table import Overwrite, Table
from lakehouse.lake import lake as search
from lakehouse.lake.lake import Lake, facts_of, find_tables, open_lake
from lakehouse.store import Store
from lakehouse_tests.log_builder import LogBuilder


def test_every_table_is_found_and_none_inside_another(store: Store) -> None:
    inside = ("sales/us/nested", "sales/d=1/not_looked_for", "_hidden/t", ".hidden/t")
    for key in ("orders", "sales/eu/orders", "sales/us", *inside):
        LogBuilder(store, key).create()
    store.put("sales/eu/file", b"")
    store.put("empty/deep/deeper/file", b"")
    found = find_tables(store, "/w")
    assert found.addresses == ("/w/orders", "/w/sales/eu/orders", "/w/sales/us")
    assert (found.left_count, found.passed) == (0, ("/w/.hidden", "/w/_hidden", "/w/sales/d=1"))


def test_a_table_at_the_address_itself_is_the_only_one(store: Store) -> None:
    LogBuilder(store, "t").create()
    for name in ("_delta_log/00000000000000000000.json", "t/x"):
        store.put(name, b"{}")
    assert find_tables(store, "s3://b/w").addresses == ("s3://b/w",)


def test_a_table_whose_first_commits_were_cleaned_up_is_found(store: Store) -> None:
    LogBuilder(store, "a/t").create().append([("x", 1)]).checkpoint().forget_before(1)
    assert find_tables(store, "/w").addresses == ("/w/a/t",)


def test_the_search_ends_where_there_are_too_many_folders(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_FOLDERS", 10)
    for number in range(30):
        store.put(f"f{number}/x/y", b"")
    LogBuilder(store, "f0").create()
    found = find_tables(store, "/w")
    assert (found.left_count, found.addresses) == (29, ("/w/f0",))


def test_a_table_of_the_lake_may_not_be_there_yet_and_one_of_others_must(lake: Lake) -> None:
    inputs = (adopted_table("silver/t", "/nowhere"),)
    own = Table(key="gold/own", write=Overwrite(), inputs=inputs, transform=lambda t: t)
    assert facts_of(lake, own) is None
    gone = adopted_table("silver/gone", f"{lake.settings.root}-elsewhere/gone")
    with pytest.raises(Refused, match="there is no Delta table at"):
        facts_of(open_lake(lake.settings, tables=[gone]), gone)
