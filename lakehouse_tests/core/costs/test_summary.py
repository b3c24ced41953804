"""Sums for people: week, month, forecast and budgets; what is unknown is not zero."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

from lakehouse import Append, Landing, Table
from lakehouse.core.costs.charges import Charge
from lakehouse.core.costs.summary import (
    FormulaCost,
    assess_budgets,
    budget_scopes,
    known_days,
    left_usd,
    parse_budgets,
    summarize,
    usd_text,
)

TODAY = date(2026, 11, 10)
TABLE = Table(
    key="bronze/a",
    source=Landing(prefix="landing/a/", format="json", schema="id BIGINT"),
    write=Append(),
    budget_usd_per_month=50,
)


def charge(day: int, usd: str, table: str = "bronze/a", part: str = "live") -> Charge:
    return Charge(
        day=date(2026, 11, day),
        table=table,
        owner="",
        kind="storage",
        part=part,
        sku="storage/STANDARD",
        quantity=Decimal(usd),
        unit="GB-Months",
        unit_price=Decimal(1),
        size_bytes=1,
    )


def test_the_forecast_is_the_month_so_far_and_the_mean_of_the_last_week_for_each_day_left() -> None:
    charges = [
        charge(2, "5"),
        charge(9, "1"),
        charge(10, "2"),
        charge(10, "1", part="orphaned_old"),
    ]
    found = summarize(charges, today=TODAY)
    assert (found.week_usd, found.month_usd, found.day_count) == (Decimal(4), Decimal(9), 3)
    assert found.forecast_usd == 9 + 20 * Decimal(4) / 2
    formula = "bytes that no table's newest version needs x the price of their class, for a month"
    assert found.amounts == (FormulaCost(name="dead bytes", usd=Decimal(30), formula=formula),)


def compaction(day: int, usd: str) -> Charge:
    return replace(charge(day, usd, part="compaction"), kind="compute")


def test_a_single_compaction_of_the_week_is_not_forecast_for_every_day() -> None:
    # Ten days of the lake's storage are known, or none: the logs show the operations of the week.
    for ledger in ([], [charge(day, "1", table="silver/b") for day in range(1, 11)]):
        left = left_usd([compaction(10, "1"), *ledger], {"bronze/a": Decimal(10)}, today=TODAY)
        assert left["bronze/a"] == 10 - (1 + Decimal(20) / 7)
    part = summarize(
        [compaction(10, "1")],
        today=TODAY,
        days=known_days([compaction(10, "1"), *ledger], today=TODAY),
    )
    assert part.forecast_usd == 1 + Decimal(20) / 7


def test_storage_that_is_known_since_today_is_forecast_for_every_day() -> None:
    found = summarize([compaction(5, "7"), charge(10, "1")], today=TODAY)
    assert found.forecast_usd == 8 + 20 * (1 + 1)


def test_days_that_the_ledger_lacks_do_not_count_as_days_without_operations() -> None:
    found = summarize([compaction(6, "4"), charge(6, "1"), charge(7, "1")], today=TODAY)
    assert found.forecast_usd == 6 + 20 * (1 + Decimal(4) / 4)


def test_nothing_known_gives_no_forecast() -> None:
    found = summarize([], today=TODAY)
    assert (found.forecast_usd, found.day_count) == (None, 0)
    assert found.amounts[0].usd is None
    assert found.as_json()["forecast_usd"] is None


def test_a_budget_of_a_table_a_layer_or_the_lake_is_exceeded_by_the_forecast() -> None:
    charges = [charge(10, "2"), charge(10, "1", table="silver/b")]
    budgets = budget_scopes([TABLE], parse_budgets("lake=62.5,silver=21"))
    assert budgets == {"lake": Decimal("62.5"), "silver": Decimal(21), "bronze/a": Decimal(50)}
    left = left_usd(charges, budgets, today=TODAY)
    assert left == {"lake": Decimal("-0.5"), "silver": Decimal(0), "bronze/a": Decimal(8)}
    result = assess_budgets(charges, budgets, today=TODAY)
    assert not result.ok
    assert result.sentence == (
        "this month, lake will cost 63.00 of 62.5 USD. Use lakehouse costs --by kind to see why, or"
        " raise the budget"
    )
    assert assess_budgets(charges[1:], budgets, today=TODAY).sentence == "3 budgets kept"
    assert assess_budgets(charges, {}, today=TODAY).sentence == "there is no budget"


def test_amounts_below_a_dollar_keep_their_digits() -> None:
    assert [usd_text(Decimal(text)) for text in ("1234.567", "0.0001234567", "0")] == [
        "1,234.57",
        "0.0001235",
        "0.00",
    ]
