"""What needs attention, with the command that helps."""

import pytest

from lakehouse import Adopted, Append, Landing, Table
from lakehouse.core.inventory.report_manifest import allowed_hours
from lakehouse.core.report.attention import (
    Attention,
    Concern,
    attention_to_checks,
    attention_to_inventory,
    attention_to_table,
    attention_to_undeclared,
)
from lakehouse.core.report.page_contents import Page
from lakehouse.core.report.values import ReportedTable, points_of
from lakehouse.core.units import HOUR_MS

ORDERS = Table(
    key="bronze/orders",
    source=Landing(prefix="landing/orders/", format="json", schema="id STRING"),
    write=Append(),
)


def test_failed_checks_of_this_lake_are_shown_unless_the_page_knows_better() -> None:
    failed = [
        ("bronze/orders", "quarantine"),
        ("bronze/orders", "breaker"),
        ("bronze/orders", "small_files"),
        ("bronze/orders", "declaration"),
        ("inventory/local", "plausible"),
        ("vacuum/bronze/orders", "lifecycle"),
        ("bronze/gone", "readable"),
        ("somebody/else", "good"),
        ("costs/chargeback", "budget"),
        ("sales/orders", "log_debt"),
    ]
    adopted = Table(
        key="silver/sales_orders",
        write=Adopted(uri="/w/orders", asset_key=("sales", "orders")),
    )
    found = attention_to_checks(failed, [ORDERS, adopted])
    assert [(each.table, each.command) for each in found] == [
        ("bronze/orders", "lakehouse evolve plan bronze/orders"),
        ("bronze/orders", "lakehouse health bronze/orders --verbose"),
        ("", ""),
        ("silver/sales_orders", "lakehouse health silver/sales_orders --verbose"),
        ("bronze/orders", "lakehouse health bronze/orders --verbose"),
    ]
    assert "check plausible of inventory/local failed" in found[2].sentence


@pytest.mark.parametrize("reason", ["BREAKER_OPEN", "REWRITE_LOOP"])
def test_a_stopped_compaction_needs_a_person(reason: str) -> None:
    table = ReportedTable(table="bronze/orders", reason=reason, decision="3 failed in a row")
    [line] = attention_to_table(table, None, now_ms=0)
    assert (line.concern, line.sentence) == (Concern.BREAKER, "3 failed in a row")


def test_an_inventory_is_late_after_26_hours_and_one_of_aws_after_its_interval_and_26() -> None:
    def is_late(hours: int, *, is_own: bool, previous_ms: int | None = None) -> bool:
        allowed = allowed_hours(0, previous_ms, own=is_own)
        now_ms = hours * HOUR_MS
        return bool(attention_to_inventory("r", created_ms=0, allowed_hours=allowed, now_ms=now_ms))

    assert [is_late(hours, is_own=True) for hours in (26, 27)] == [False, True]
    assert [is_late(hours, is_own=False) for hours in (50, 51)] == [False, True]
    week_ms = -7 * 24 * HOUR_MS
    weekly = [is_late(hours, is_own=False, previous_ms=week_ms) for hours in (194, 195)]
    assert weekly == [False, True]


def test_what_is_urgent_comes_first_and_nothing_is_nothing() -> None:
    assert attention_to_undeclared([]) == []
    lines = tuple(
        Attention(concern=concern, sentence=concern.name)
        for concern in (Concern.PAUSED, Concern.UNREADABLE, Concern.PAUSED)
    )
    concerns = Page(lake="l", created_ms=0, attention=lines).concerns
    assert [(concern.name, len(group)) for concern, group in concerns.items()] == [
        ("UNREADABLE", 1),
        ("PAUSED", 2),
    ]


def test_a_long_history_is_thinned_and_keeps_its_newest_point() -> None:
    points = points_of(range(1000), range(1000, 2000))
    assert len(points) <= 48 and points[-1] == (999, 1999)
    assert points == tuple(sorted(points))
    assert points_of([5], [7]) == ((5, 7),)
