"""A summary of a lake's costs: this week, this month, the forecast, and the budgets."""

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from lakehouse.core.check_result import CheckResult
from lakehouse.core.costs.charges import Charge, CostSum, sum_by, total_usd
from lakehouse.core.declaration.table import Table
from lakehouse.core.text import count_of

_SHOWN_TABLES = 10
_DAYS_OF_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class FormulaCost:
    """An amount in USD, and its formula in words. `None` means unknown."""

    name: str
    usd: Decimal | None
    formula: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSummary:
    """The costs of a lake, or of a part of it.

    - `day_count`: the number of days of the present month with a charge.
    - `forecast_usd`: the cost of the whole month, if each remaining day costs the mean of the known
      days (`KnownDays`) among the last seven. `None` if none of the seven is known.
    - `dearest`: up to ten tables with the highest costs of this month.
    - `amounts`: the cost of dead bytes (`Charge.is_dead`), and the amounts that the caller passed.
    """

    today: date
    day_count: int
    week_usd: Decimal
    month_usd: Decimal
    forecast_usd: Decimal | None
    dearest: tuple[CostSum, ...]
    amounts: tuple[FormulaCost, ...]

    def as_json(self) -> dict[str, Any]:
        """The documented shape of `lakehouse costs --json`, without its groups."""
        return {
            "today": self.today.isoformat(),
            "known_days": self.day_count,
            "week_usd": usd_number(self.week_usd),
            "month_usd": usd_number(self.month_usd),
            "forecast_usd": usd_number(self.forecast_usd),
            "dearest": [{"name": each.name, "usd": usd_number(each.usd)} for each in self.dearest],
            "amounts": [
                {"name": each.name, "usd": usd_number(each.usd), "formula": each.formula}
                for each in self.amounts
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDays:
    """For how many of the last seven days, including today, the costs are recorded.

    Costs of storage need an inventory, so they may be known for fewer days than those of
    operations.
    """

    storage: int
    operations: int

    def of(self, charge: Charge) -> int:
        """The number of known days for charges of this kind."""
        return self.storage if charge.kind == "storage" else self.operations


def known_days(ledger: Sequence[Charge], *, today: date) -> KnownDays:
    """The known days of the last seven, according to the ledger: all charges of a lake.

    Storage is known on each day with a storage charge. Operations are read from logs, so they are
    known on all days up to the newest charge. Without storage charges in this week, a known day may
    have no charge, so operations are known up to today. Without any charge in this week, no day is
    known.
    """
    week = _of_week(ledger, today)
    if not week:
        return KnownDays(storage=0, operations=0)
    storage_days = {each.day for each in week if each.kind == "storage"}
    newest = max(each.day for each in week) if storage_days else today
    operation_count = _DAYS_OF_WEEK - (today - newest).days
    return KnownDays(storage=len(storage_days), operations=operation_count)


def summarize(
    charges: Sequence[Charge],
    *,
    today: date,
    amounts: Sequence[FormulaCost] = (),
    days: KnownDays | None = None,
) -> CostSummary:
    """The sums of the charges of this month and the last seven days.

    If the charges are only a part of the ledger, `days` must be the known days of the whole ledger.
    """
    month = [each for each in charges if each.day >= today.replace(day=1)]
    week = _of_week(charges, today)
    days = days or known_days(charges, today=today)
    return CostSummary(
        today=today,
        day_count=len({each.day for each in month}),
        week_usd=total_usd(week),
        month_usd=total_usd(month),
        forecast_usd=forecast_usd(charges, today=today, days=days),
        dearest=tuple(sum_by(month, "table")[:_SHOWN_TABLES]),
        amounts=(_dead_bytes(charges), *amounts),
    )


def forecast_usd(charges: Sequence[Charge], *, today: date, days: KnownDays) -> Decimal | None:
    """The known costs of this month, plus the mean of the known days for each remaining day.

    `days` are the known days of the whole ledger, because a table without a charge on a known day
    cost nothing on that day.
    """
    if not days.operations:
        return None
    week = _of_week(charges, today)
    storage_usd = total_usd(each for each in week if each.kind == "storage")
    operations_usd = total_usd(each for each in week if each.kind != "storage")
    month_usd = total_usd(each for each in charges if each.day >= today.replace(day=1))
    days_left = monthrange(today.year, today.month)[1] - today.day
    return (
        month_usd
        + storage_usd * days_left / max(1, days.storage)
        + operations_usd * days_left / days.operations
    )


def parse_budgets(text: str) -> dict[str, Decimal]:
    """Scope -> USD per month, from `LAKEHOUSE_BUDGETS`, for example `lake=50,bronze=20`."""
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {scope: Decimal(usd) for scope, _, usd in pairs}


def budget_scopes(tables: Iterable[Table], budgets: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """All budgets by scope: a table's key, a layer, or `lake`.

    A table's declared budget replaces a budget of the same table in `budgets`.
    """
    declared = {
        table.key: Decimal(repr(table.budget_usd_per_month))
        for table in tables
        if table.budget_usd_per_month is not None
    }
    return {**budgets, **declared}


def left_usd(
    charges: Sequence[Charge], budgets: Mapping[str, Decimal], *, today: date
) -> dict[str, Decimal]:
    """Each budget minus the month's forecast, by scope (see `budget_scopes`).

    It is negative if the forecast exceeds the budget. An unknown forecast counts as 0.
    """
    left = dict[str, Decimal]()
    days = known_days(charges, today=today)
    for scope, budget in budgets.items():
        in_scope = [each for each in charges if scope in ("lake", each.layer, each.table)]
        forecast = forecast_usd(in_scope, today=today, days=days) or Decimal(0)
        left[scope] = budget - forecast
    return left


def assess_budgets(
    charges: Sequence[Charge], budgets: Mapping[str, Decimal], *, today: date
) -> CheckResult:
    """Whether the month's forecast stays within all budgets."""
    left = left_usd(charges, budgets, today=today)
    over = [scope for scope, usd in left.items() if usd < 0]
    if not over:
        kept = f"{count_of(len(budgets), 'budget')} kept" if budgets else "there is no budget"
        return CheckResult(name="budget", ok=True, sentence=kept)
    texts = [
        f"{scope} will cost {usd_text(budgets[scope] - left[scope])} of {budgets[scope]:f} USD"
        for scope in over
    ]
    advice = "Use lakehouse costs --by kind to see why, or raise the budget"
    return CheckResult(
        name="budget",
        ok=False,
        sentence=f"this month, {'; '.join(texts)}. {advice}",
        numbers={"over_budget": len(over)},
    )


def usd_text(usd: Decimal) -> str:
    """The amount with two decimals or, below 1 USD, with four significant digits."""
    return f"{usd:,.2f}" if abs(usd) >= 1 or not usd else f"{usd:.4g}"


def usd_number(usd: Decimal | None) -> float | None:
    """A number for JSON documents."""
    return None if usd is None else float(round(usd, 9))


def _of_week(charges: Iterable[Charge], today: date) -> list[Charge]:
    first = today - timedelta(days=_DAYS_OF_WEEK - 1)
    return [each for each in charges if first <= each.day <= today]


def _dead_bytes(charges: Sequence[Charge]) -> FormulaCost:
    stored = [each for each in charges if each.kind == "storage"]
    if not stored:
        return FormulaCost(name="dead bytes", usd=None, formula="unknown without an inventory")
    newest = max(each.day for each in stored)
    days = monthrange(newest.year, newest.month)[1]
    usd = total_usd(each for each in stored if each.day == newest and each.is_dead) * days
    formula = "bytes that no table's newest version needs x the price of their class, for a month"
    return FormulaCost(name="dead bytes", usd=usd, formula=formula)
