"""`lakehouse inventory`: nothing without a scan, the bytes by table and part, and what is missing loudly."""

import pytest

from lakehouse.store import DiskStore
from lakehouse_tests.support.terminal import Terminal, type_of_story


@pytest.fixture
def stored(terminal: Terminal, story: type_of_story) -> Terminal:
    """A lake in which every live file is stored, one was compacted away, and one lies in no version."""
    builder = (
        story("bronze/orders")
        .create(partition_by=["d"])
        .append([("d=1/a", 100), ("d=1/b", 200)])
        .store_data()
    )
    builder.optimize(["d=1/a", "d=1/b"], into=("d=1/c", 280)).store_data()
    store = DiskStore(terminal.root)
    store.put("bronze/orders/d=1/stray", b"x" * 7)
    store.put("landing/orders/1.json", b"x" * 9)
    return terminal


def test_without_a_report_one_is_told_to_scan(stored: Terminal) -> None:
    assert "lakehouse inventory load" in stored.refused("inventory", "report")


def test_the_report_tells_where_the_bytes_lie(stored: Terminal) -> None:
    stored.scan()
    result = stored.run("inventory", "report")
    assert result.exit_code == 0, result.stderr
    rows = [" ".join(line.split()[:6]) for line in result.stdout.splitlines()]
    for row in ("live - 1 280 B", "tombstoned_past - 2 300 B", "orphaned_young - 1 7 B"):
        assert f"bronze/orders {row}" in rows
    assert "- landing/orders/ - 1 9 B" in rows
    assert "0.0 h ago" in result.stdout


def test_one_table_is_shown_alone_and_an_unknown_one_is_refused(stored: Terminal) -> None:
    stored.scan()
    document = stored.json("inventory", "report", "bronze/orders")
    assert [table["table"] for table in document["tables"]] == ["bronze/orders"]
    assert document["unclaimed"] == []
    assert "did you mean bronze/orders?" in stored.refused("inventory", "report", "bronze/order")


def test_a_live_file_that_is_missing_is_told_loudly(stored: Terminal) -> None:
    (stored.root / "bronze/orders/d=1/c").unlink()
    stored.scan()
    result = stored.run("inventory", "report")
    assert result.exit_code == 1
    assert "bronze/orders: not in storage: 1\n  d=1/c\n" in result.stdout
    lacks = "Broken: the inventory lacks 1 live file: bronze/orders/d=1/c. "
    assert f"{lacks}Unless the inventory covers another prefix" in result.stderr
