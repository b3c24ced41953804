"""Compares the costs of the present month with the budgets of a lake."""

from collections.abc import Mapping
from dataclasses import dataclass

from lakehouse.core.checks import CheckResult
from lakehouse.core.costs.charges import Charge
from lakehouse.core.costs.exact_amounts import day_of, month_start
from lakehouse.core.costs.focus import charge_of
from lakehouse.core.costs.summary import assess_budgets, budget_scopes, left_usd, parse_budgets
from lakehouse.core.declaration.table import Table
from lakehouse.engine.costs.chargeback import read_charges
from lakehouse.engine.lake import Lake


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetReading:
    """The check of all budgets; and what is left, and what is forecast, by scope in USD."""

    check: CheckResult
    left_usd: Mapping[str, float]
    forecast_usd: Mapping[str, float]


def read_budgets(lake: Lake, tables: Mapping[str, Table], *, now_ms: int) -> BudgetReading:
    """The budgets of a lake and of its tables, and what the recorded charges leave of them."""
    budgets = budget_scopes(tables.values(), parse_budgets(lake.settings.budgets))
    today, charges = day_of(now_ms), list[Charge]()
    if budgets:
        recorded = read_charges(lake, since=month_start(now_ms))
        charges = [charge_of(row) for rows in recorded.values() for row in rows]
    left = left_usd(charges, budgets, today=today)
    return BudgetReading(
        check=assess_budgets(charges, budgets, today=today),
        left_usd={scope: float(usd) for scope, usd in left.items()},
        forecast_usd={scope: float(budgets[scope] - usd) for scope, usd in left.items()},
    )
