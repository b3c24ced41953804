"""The order of what is due, and what it costs in words."""

import pytest

from lakehouse.base.operation import NetBenefit, Operation, price_cells, ranked


def operation(table: str, *, is_due: bool = True, **more: object) -> Operation:
    known = {"operation": "compact", "reason": "DUE", "sentence": ""}
    return Operation(table=table, is_due=is_due, **{**known, **more})  # type: ignore[arg-type]


def price(benefit: float, cost: float) -> NetBenefit:
    return NetBenefit(benefit_usd_per_day=benefit, cost_usd=cost)


def test_what_stops_writes_comes_first_and_what_has_no_price_by_its_size() -> None:
    order = [
        operation("stops", operation="evolve", stops_writes=True),
        operation("cheap", net_benefit=price(0.2, 0.1)),
        operation("dear", net_benefit=price(0.9, 9.0), size_bytes=9),
        operation("useless", net_benefit=price(0.0, 1.0)),
        operation("large", size_bytes=7),
        operation("small", size_bytes=3),
        operation("idle", is_due=False, net_benefit=price(5.0, 0.1), size_bytes=99),
    ]
    assert ranked(reversed(order)) == order


@pytest.mark.parametrize(
    ("benefit", "cost", "cells"),
    [
        (0.000012345, 3.39e-06, ("0.00000339", "7 h")),
        (1.0, 0.0005, ("0.0005", "43 s")),
        (0.5, 15.0, ("15", "30 days")),
        (1e-9, 0.01, ("0.01", "27,397 years")),
        (1.0, 0.0, ("0", "-")),
        (0.0, 2.0, ("2", "-")),
    ],
)
def test_no_cell_shows_an_exponent(benefit: float, cost: float, cells: tuple[str, str]) -> None:
    assert price_cells(price(benefit, cost)) == cells
    assert "e-" not in price(benefit, cost).sentence


def test_an_unknown_price_is_not_guessed() -> None:
    assert price_cells(None) == ("-", "-")
