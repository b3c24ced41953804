"""`lakehouse costs`, without a JVM."""

from lakehouse.base.stored_objects import Part
from lakehouse_tests.support.terminal import Terminal
from lakehouse_tests.watch.costs.story import record_charges
from lakehouse_tests.watch.costs.test_plan import ORDERS, share, stored


def test_costs_are_unknown_before_they_are_recorded_and_not_zero(told: Terminal) -> None:
    assert told.run("costs").stdout.startswith("no costs are recorded since ")
    document = told.json("costs")
    assert (document["groups"], document["until"]) == ([], None)


def test_costs_are_those_of_the_recorded_days(told: Terminal) -> None:
    record_charges(told.root, stored(share(Part.LIVE, 30 << 30), unclaimed=(share(None, 1 << 30),)))
    document = told.json("costs", "--since", "2026-11-01", "--by", "layer")
    expected = [("bronze", 0.023), ("(outside all tables)", 0.000766667)]
    assert [(each["name"], each["usd"]) for each in document["groups"]] == expected
    assert (document["since"], document["until"]) == ("2026-11-01", "2026-11-27")
    of_table = told.json("costs", ORDERS.key, "--since", "2026-11-01")
    assert of_table["usd"] == 0.023
    shown = told.run("costs", "--since", "2026-11-01").stdout.splitlines()
    expected = ["table", "stored", "storage", "USD", "compute", "USD", "requests", "USD", "USD"]
    assert shown[0].split() == expected
    assert shown[2].split() == ["bronze/orders", "30", "GiB", "0.023", "0", "0", "0.023"]
    assert shown[-1] == "2026-11-01 to 2026-11-27: 0.0238 USD"
    later = told.run("costs", "--since", "2026-11-28").stdout
    assert later.startswith("no costs are recorded since 2026-11-28")
