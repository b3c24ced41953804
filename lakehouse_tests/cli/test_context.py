"""One exit code for several tables, and the package that declares them."""

import os
import sys
from pathlib import Path

import pytest

from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.cli.context import print_errors
from lakehouse.declare.adopted import adopted_table
from lakehouse.lake.lake import Found
from lakehouse_tests.support.terminal import Terminal


@pytest.mark.parametrize(
    ("errors", "worst"),
    [
        ((), 0),
        ((Transient, Broken), 1),
        ((Refused, Transient, Broken), 1),
        ((Transient, Refused), 2),
        ((Transient, Transient), 75),
    ],
)
def test_what_a_person_must_look_at_is_not_hidden_by_what_may_be_tried_again(
    errors: tuple[type[LakehouseError], ...], worst: int
) -> None:
    table = adopted_table("gold/daily", "/data/daily")
    assert print_errors([Found(table=table, error=each("why")) for each in errors]) == worst


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command adds to the path of modules is gone after the test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "elsewhere")


SOURCE = """
from lakehouse import Append, Landing, Table
source = Landing(prefix='landing/o/', format='json', schema='id BIGINT')
"""


@pytest.mark.usefixtures("own_path")
def test_the_package_of_tables_is_found_in_the_working_folder_also_by_child_processes(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_shop").mkdir()
    orders = "orders = Table(key='bronze/my_orders', source=source, write=Append())"
    (tmp_path / "my_shop" / "bronze.py").write_text(SOURCE + orders)
    said = "Python finds no package my_shop"
    assert said in terminal.refused("tables", LAKEHOUSE_TABLES="my_shop")
    monkeypatch.chdir(tmp_path)
    [found] = terminal.json("tables", LAKEHOUSE_TABLES="my_shop")
    assert found["table"] == "bronze/my_orders"
    assert os.environ["PYTHONPATH"] == os.pathsep.join(("elsewhere", str(tmp_path)))


@pytest.mark.usefixtures("own_path")
def test_a_table_in_an_earlier_folder_is_known_by_both_keys(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "key='bronze/sales', location='bronze/orders'"
    sales = f"sales = Table({place}, source=source, write=Append())"
    (tmp_path / "moved_shop.py").write_text(SOURCE + sales)
    monkeypatch.chdir(tmp_path)
    for name in ("bronze/sales", "bronze/orders"):
        refusal = terminal.refused("compact", name, LAKEHOUSE_TABLES="moved_shop")
        assert "declared but does not exist yet" in refusal
