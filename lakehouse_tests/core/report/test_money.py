"""Money on the morning page: the sums, the dearest tables, why, and what to do."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from lakehouse import Append, Compaction, Landing, Table
from lakehouse.core.costs.charges import Charge
from lakehouse.core.costs.summary import summarize
from lakehouse.core.report.money import attention_to_budgets, forecast_by_table, money_of
from lakehouse.core.settings import parse_settings
from lakehouse.engine.costs.price_book import load_price_book

BOOK = load_price_book(parse_settings({}, base=Path("/nowhere")))
ORDERS = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id STRING"),
    write=Append(),
    owner="sales",
    budget_usd_per_month=10,
)
TABLES = {"bronze/orders": ORDERS}
# The tenth of a month of thirty days.
TODAY = date(2026, 11, 10)


def stored(part: str, usd: str, table: str = "bronze/orders") -> Charge:
    """One day of storage."""
    return Charge(
        day=TODAY,
        table=table,
        owner="sales" if table else "",
        kind="storage",
        part=part,
        sku="storage/STANDARD",
        quantity=Decimal(usd),
        unit="GB-Months",
        unit_price=Decimal(1),
    )


def ran(kind: str, usd: str, day: int) -> Charge:
    return replace(
        stored(kind, usd), kind="compute", day=TODAY.replace(day=day), sku="compute/vcpu-hour"
    )


def money(*charges: Charge):
    return money_of(charges, BOOK, TABLES, today=TODAY, is_on_s3=True)


def test_the_sums_are_those_of_lakehouse_costs_and_the_parts_sum_up_to_the_forecast() -> None:
    charges = [
        stored("live", "0.5"),
        stored("log_other", "0.25", "gold/other"),
        replace(stored("live", "0.5"), day=TODAY.replace(day=1)),
        ran("compaction", "3", 2),
        ran("compaction", "1", 9),
    ]
    summary = summarize(charges, today=TODAY)
    found = money(*charges)
    assert (found.week_usd, found.month_usd) == (1.75, 5.25)
    assert found.forecast_usd == pytest.approx(float(summary.forecast_usd or 0))
    # Storage is known of one of the last seven days, operations of all, and twenty are to come.
    assert found.forecast_usd == pytest.approx(5.25 + 20 * (0.75 + 1 / 7))
    parts = forecast_by_table(charges, today=TODAY)
    assert sum(usd for of_table in parts.values() for usd in of_table.values()) == pytest.approx(
        found.forecast_usd
    )
    assert {each.name: each.usd for each in found.by_kind} == {
        "storage: live": 1.0,
        "storage: log_other": 0.25,
        "compute: compaction": 4.0,
    }
    assert [(each.name, each.usd) for each in found.by_owner] == [("sales", 5.25)]


def test_the_dearest_table_comes_first_with_its_parts_and_their_shares() -> None:
    charges = stored("live", "1"), stored("live", "3", "gold/other"), stored("log_other", "1")
    first, second = money(*charges).dearest
    assert (first.table, first.why) == ("gold/other", "100% live data")
    assert first.usd_per_month == pytest.approx(3 * 21)
    assert second.why == "50% live data, 50% log"
    assert sum(part.usd for part in second.parts) == second.usd_per_month == pytest.approx(42)


@pytest.mark.parametrize(
    ("charge", "command"),
    [
        (stored("tombstoned_past", "0.2"), "lakehouse vacuum bronze/orders --dry-run"),
        (stored("tombstoned_kept", "0.5"), "lakehouse inventory report bronze/orders"),
        (
            ran("compaction", "9", 9),
            "lakehouse backtest bronze/orders --policy min_small_files=80 --compare",
        ),
        (stored("archived", "0.5"), "lakehouse archive bronze/orders --list"),
        (ran("archive", "9", 9), "lakehouse archive bronze/orders --dry-run"),
        (ran("ttl", "9", 9), "lakehouse ttl bronze/orders --dry-run"),
        (ran("restore", "9", 9), "lakehouse costs bronze/orders --by kind"),
        (stored("log_commits", "0.5"), "lakehouse health bronze/orders --verbose"),
        (stored("live", "1"), "lakehouse inventory report bronze/orders"),
    ],
)
def test_the_advice_is_about_the_part_that_can_be_made_smaller(
    charge: Charge, command: str
) -> None:
    assert money(stored("live", "1"), charge).dearest[0].command == command


def test_the_advised_threshold_is_twice_the_declared_one() -> None:
    declared = replace(ORDERS, compaction=Compaction(min_small_files=10))
    charges = [stored("live", "1"), ran("compaction", "9", 9)]
    found = money_of(charges, BOOK, {declared.key: declared}, today=TODAY, is_on_s3=True)
    assert "Compaction(min_small_files=20)" in found.dearest[0].advice


def test_unfinished_uploads_are_named_with_their_way_out() -> None:
    [table] = money(stored("live", "1"), stored("multipart", "1")).dearest
    assert "unfinished uploads" in table.why and "AbortIncompleteMultipartUpload" in table.advice


def test_the_run_that_archives_is_no_part_of_the_archive() -> None:
    [table] = money(stored("archived", "1"), ran("archive", "7", 10)).dearest
    assert {part.name for part in table.parts} == {"archive", "compute of archive"}


def test_the_inventory_is_not_called_files_of_no_table() -> None:
    requests = replace(
        stored("inventory", "1", ""), kind="requests", sku="requests/put", storage_class=""
    )
    [outside] = money(requests).dearest
    assert outside.advice == "This is what the inventory itself costs"


def test_files_of_no_table_have_a_name_and_an_advice_too() -> None:
    [outside] = money(stored("outside", "1", "")).dearest
    assert (outside.table, outside.command, outside.is_outside) == (
        "(outside all tables)",
        "lakehouse inventory report",
        True,
    )


def test_without_an_inventory_storage_is_unknown_and_in_no_sum() -> None:
    found = money(ran("vacuum", "1", 10))
    assert (found.has_storage, found.dead_usd, found.week_usd) == (False, None, 1.0)
    nothing = money()
    assert (nothing.forecast_usd, nothing.known_days, nothing.dearest) == (None, 0, ())


def test_a_budget_that_the_month_will_exceed_needs_a_person() -> None:
    charges = [stored("live", "0.4"), stored("live", "0.1", "gold/other")]
    budgets = {"bronze/orders": Decimal(8), "gold": Decimal(10), "lake": Decimal(9)}
    lines = attention_to_budgets(charges, budgets, TABLES, today=TODAY)
    assert [(line.table, line.sentence, line.command) for line in lines] == [
        (
            "bronze/orders",
            "this month, bronze/orders will cost 8.40 USD; its budget is 8 USD",
            "lakehouse costs bronze/orders",
        ),
        (
            "",
            "this month, lake will cost 10.50 USD; its budget is 9 USD",
            "lakehouse costs --by table",
        ),
    ]
