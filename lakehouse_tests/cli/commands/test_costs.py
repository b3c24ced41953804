"""`lakehouse costs`, before any ledger exists: the newest inventory and the logs are priced, without a JVM."""

from lakehouse_tests.cli.conftest import Terminal


def test_costs_are_unknown_without_an_inventory_and_not_zero(told: Terminal) -> None:
    printed = told.run("costs").stdout
    assert "Storage is unknown: there is no inventory. Use lakehouse inventory scan" in printed
    amounts = told.json("costs")["amounts"]
    unknown = {"usd": None, "formula": "unknown without an inventory"}
    assert amounts[0] == {"name": "dead bytes", **unknown}
    assert amounts[-1] == {"name": "saved by archive", **unknown}


def test_costs_of_today_are_those_of_the_newest_inventory(told: Terminal) -> None:
    told.run("inventory", "scan")
    lake = told.json("costs", "--by", "layer")
    assert lake["known_days"] == 1
    assert {"bronze", "silver"} <= {group["name"] for group in lake["groups"]}
    table = told.json("costs", "silver/orders", "--by", "kind")
    assert "storage: log_commits" in {group["name"] for group in table["groups"]}
    assert 0 < table["month_usd"] < lake["month_usd"]
    assert lake["forecast_usd"] >= lake["month_usd"]
    names = ["dead bytes", "small files", "saved by compaction", "saved by inventory"]
    assert [each["name"] for each in lake["amounts"]] == [*names, "saved by archive"]
    assert lake["amounts"][-1]["usd"] == 0
    printed = told.run("costs").stdout
    assert "forecast" in printed
    *_, why, way_out = printed.rstrip("\n").split("\n")
    assert why.startswith("silver/orders costs the most, ") and why.endswith(
        " USD a month: 100% log"
    )
    assert way_out.endswith(": lakehouse health silver/orders --verbose")
    *_, why, way_out = told.run("costs", "bronze/orders").stdout.rstrip("\n").split("\n")
    assert why.startswith("bronze/orders costs ") and "most" not in why


def test_a_budget_that_is_no_amount_is_refused(told: Terminal) -> None:
    sentence = told.refused("costs", LAKEHOUSE_BUDGETS="lake=much")
    assert (
        "LAKEHOUSE_BUDGETS is 'lake=much'. Use USD per month, for example lake=50,bronze=20"
        in sentence
    )
