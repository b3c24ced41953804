"""The account of a table: its log, and what the journal holds of tries that came to nothing."""

from dataclasses import replace

from lakehouse.core.compaction.outcome import CompactionOutcome
from lakehouse.core.costs.ledger import RUNS_KEPT, Account, account_for
from lakehouse.core.declaration.table import Table
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake


def account_of(lake: Lake, table: Table, facts: TableFacts) -> Account:
    """The account of a table up to the version of these facts; of tries that failed, those still on record."""
    failed = [each for each in Journal(lake.store).tries(table.key, newest=RUNS_KEPT) if each.result != "succeeded"]
    return account_for(facts.history, failed, prices=table.prices, on_s3=facts.snapshot.on_s3)


def with_account(lake: Lake, table: Table, outcome: CompactionOutcome) -> CompactionOutcome:
    """The outcome with the account of its table up to and with it; as it is, if nothing was committed."""
    newest, facts = outcome.version_after, outcome.facts
    if newest is None or facts is None:
        return outcome
    history = replace(facts.history, commits=tuple(commit for commit in facts.history.commits if commit.version <= newest))
    return replace(outcome, account=account_of(lake, table, replace(facts, history=history)))
