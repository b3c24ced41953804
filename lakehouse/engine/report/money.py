"""Money for the morning page, from the same ledger as `lakehouse costs`."""

from collections.abc import Mapping
from datetime import timedelta

from lakehouse.core.costs.charges import day_of
from lakehouse.core.costs.exact_amounts import month_start
from lakehouse.core.costs.focus import midnight
from lakehouse.core.costs.summary import budget_scopes, parse_budgets
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError
from lakehouse.core.report.money import Money, attention_to_budgets, money_of
from lakehouse.core.report.values import Attention, Concern
from lakehouse.engine.costs.chargeback import KnownFacts
from lakehouse.engine.costs.cost_tables import DAYS_BACK
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.costs.read_ledger import read_ledger
from lakehouse.engine.lake import Lake


def read_money(
    lake: Lake, declared: Mapping[str, Table], known: KnownFacts, *, now_ms: int
) -> tuple[Money | None, list[Attention]]:
    """The costs, and the budgets that the month will exceed. `None` if they cannot be read.

    `known` are facts that were read for other parts of the page.
    """
    today = day_of(now_ms)
    try:
        book = load_price_book(lake.settings)
        ledger = read_ledger(lake, declared, since=month_start(now_ms), now_ms=now_ms, facts=known)
    except LakehouseError as error:
        return None, [Attention(concern=Concern.UNREADABLE, sentence=str(error))]
    money = money_of(ledger.charges, book, declared, today=today, is_on_s3=lake.settings.on_s3)
    budgets = budget_scopes(declared.values(), parse_budgets(lake.settings.budgets))
    return money, attention_to_budgets(ledger.charges, budgets, declared, today=today)


def operations_start_ms(now_ms: int) -> int:
    """The time since which `KnownFacts` must have all operations."""
    first = day_of(now_ms) - timedelta(days=DAYS_BACK)
    return int(midnight(first).timestamp() * 1000)
