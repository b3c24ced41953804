"""`lakehouse backtest`: replays the log of any Delta table under another policy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from lakehouse.cli.commands.backtest_text import (
    backtest_document,
    print_backtests,
    title_of,
)
from lakehouse.cli.context import (
    LakeContext,
    complete_table,
    keys_by_address,
    open_declared,
    resolve_address,
)
from lakehouse.cli.output import json_option, tell, write_json
from lakehouse.core.backtest.result import Backtest
from lakehouse.core.backtest.simulate import real_result, simulate_history
from lakehouse.core.costs.compaction_speed import Rates, fit_rates
from lakehouse.core.declaration.adopted import is_address
from lakehouse.core.declaration.compaction_policy import Compaction, policy_for
from lakehouse.core.declaration.policy_text import parse_policy
from lakehouse.core.declaration.prices import DEFAULT_PRICES, Prices
from lakehouse.core.delta.file_history import FileHistory
from lakehouse.core.errors import Refused
from lakehouse.engine.delta_log.file_history import read_file_history
from lakehouse.engine.lake import Lake, open_lake


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A table whose log is replayed, with its declared policy and prices."""

    lake: Lake
    key: str
    layer: str
    declared: Compaction
    prices: Prices = DEFAULT_PRICES


# The strategies that can be simulated, and `none`: no compaction. A log does not show what Delta's
# auto_compaction and optimized_write would have done.
_STRATEGIES = {
    "by_sensor": ("mode=automatic", "strategy=by_sensor"),
    "after_write": ("mode=automatic", "strategy=after_write"),
    "each_night": ("mode=automatic", "strategy=scheduled:0 3 * * *"),
    "none": ("mode=off", "strategy=by_sensor"),
}


@click.command(
    "backtest",
    epilog="Example: lakehouse backtest bronze/weather --policy min_small_files=8 --compare",
)
@click.argument("table", shell_complete=complete_table)
@click.option(
    "--policy",
    "words",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a knob of the replayed policy. May be given several times.",
)
@click.option(
    "--compare", is_flag=True, help="Also show the policy in force, and the real history."
)
@click.option(
    "--strategies",
    is_flag=True,
    help="Also replay each strategy that can be simulated, and the log without any compaction.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Show every version, not only those with a compaction."
)
@json_option
def backtest_command(
    table: str,
    words: tuple[str, ...],
    compare: bool,
    strategies: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    """Replay a table's log under another policy. Does not start a JVM.

    Shows what would have been compacted, when, and at what cost, if TABLE had always had that
    policy. TABLE is a declared table, or the path or s3:// URI of any Delta table. An undeclared
    table gets the default policy of the bronze layer. Nothing is changed.
    """
    subject = _subject(open_declared(), table)
    backtests = backtests_of(subject, words, compare=compare, strategies=strategies)
    if as_json:
        write_json(backtest_document(backtests))
    else:
        print_backtests(backtests, verbose=verbose)


def backtests_of(
    subject: Subject, words: Sequence[str] = (), *, compare: bool = False, strategies: bool = False
) -> dict[str, Backtest]:
    """The back-tests by name.

    - `given`, with `words`: the declared policy with these knobs changed.
    - `in_force`, without `words` or with `compare`: the declared policy.
    - `really`, with `compare`: the real history.
    - With `strategies`, each strategy by its name: the first policy above, with its strategy
      replaced. It is left out if it equals a policy that is already listed.

    A policy that cannot be simulated is left out, with a message; `given` raises an error instead.

    Raises:
        Refused: there is no table, a knob cannot be parsed, `given` cannot be simulated, or no
            policy can be simulated.
    """
    lake = subject.lake
    key = subject.key
    declared = subject.declared
    requested = dict[str, Compaction]()
    if words:
        requested["given"] = parse_policy(words, declared)
    if compare or not words:
        requested["in_force"] = declared
    if strategies:
        requested |= _with_each_strategy(next(iter(requested.values())))
    uri = lake.table_uri(key)
    file_history = read_file_history(lake.store, key, uri=uri)
    facts = lake.facts(key)
    if file_history is None or facts is None:
        raise Refused(
            f"backtest of {key}: there is no Delta table at {uri}. "
            "Use a declared table, a path or a URI"
        )
    rates = fit_rates(facts.history, facts.snapshot, prices=subject.prices)
    policies = dict[str, Compaction]()
    for name, compaction in requested.items():
        policy = policy_for(subject.layer, compaction)
        if name not in _STRATEGIES or policy not in policies.values():
            policies[name] = policy
    backtests = _simulate(file_history, policies, rates)
    if compare:
        # Small files are counted as in the first replay, and the cost of the real compactions is
        # estimated with the declared verification.
        first = next(iter(policies.values()))
        compared_as = replace(first, verify=policy_for(subject.layer, declared).verify)
        backtests["really"] = real_result(file_history, compared_as, rates=rates)
    return backtests


def _with_each_strategy(compaction: Compaction) -> dict[str, Compaction]:
    return {name: parse_policy(knobs, compaction) for name, knobs in _STRATEGIES.items()}


def _simulate(
    file_history: FileHistory, policies: Mapping[str, Compaction], rates: Rates
) -> dict[str, Backtest]:
    """The back-tests of the policies that can be simulated. Prints why others are left out."""
    backtests = dict[str, Backtest]()
    refusals = dict[str, Refused]()
    for name, policy in policies.items():
        try:
            backtests[name] = simulate_history(file_history, policy, rates=rates)
        except Refused as error:
            if name == "given":
                raise
            refusals[name] = error
    if not backtests:
        raise next(iter(refusals.values()))
    for name, error in refusals.items():
        tell(f"{title_of(name)} is left out: {error}")
    return backtests


def _subject(context: LakeContext, table: str) -> Subject:
    """A declared table by its key or address, or any other table by its address or folder."""
    is_path = is_address(table) or Path(table, "_delta_log").is_dir()
    is_declared_address = is_address(table) and resolve_address(table) in keys_by_address(
        context.tables, context.lake.settings
    )
    if table in context.tables or is_declared_address or not is_path:
        [declared_table] = context.choose([table])
        return Subject(
            lake=context.lake,
            key=declared_table.key,
            layer=declared_table.layer,
            declared=declared_table.compaction,
            prices=declared_table.prices,
        )
    root, _, key = resolve_address(table).rpartition("/")
    if root == "s3:/":  # a bucket, and no folder in it
        raise Refused(
            f"backtest of {table}: not a table. "
            "Use s3://bucket/path/of/table, a folder, or a declared table"
        )
    # The root is empty if the table's folder lies directly below `/`.
    settings = replace(context.lake.settings, root=root or "/.")
    return Subject(lake=open_lake(settings), key=key, layer="bronze", declared=Compaction())
