"""The account of a table: its log, and what the journal holds of tries that came to nothing."""

from dataclasses import replace

from lakehouse.core.account import Account, account_for
from lakehouse.core.outcome import CompactionOutcome
from lakehouse.core.table import Table
from lakehouse.engine.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.log_reader import TableFacts


def account_of(lake: Lake, table: Table, facts: TableFacts) -> Account:
    """The account of a table up to the version of these facts; of tries that failed, the newest twenty."""
    failed = [each for each in Journal(lake.store).tries(table.key) if each.result != "succeeded"]
    return account_for(facts.history, failed, prices=table.prices, on_s3=facts.layout.on_s3)


def with_account(lake: Lake, table: Table, outcome: CompactionOutcome) -> CompactionOutcome:
    """The outcome with the account of its table up to and with it; as it is, if nothing was committed."""
    if outcome.version_after is None:
        return outcome
    facts = lake.facts(table.key, version=outcome.version_after)
    return outcome if facts is None else replace(outcome, account=account_of(lake, table, facts))
