"""`lakehouse history`: every commit of a table; of a compaction also when and why it ran, predicted beside actual."""

import json
from typing import Any

import click

from lakehouse.cli.opened import complete_table, open_declared
from lakehouse.cli.output import bytes_text, count_text, json_option, print_grid, tell, time_text, write_json
from lakehouse.core.errors import Refused
from lakehouse.core.history import Commit

_PREDICTED = ("files_removed", "files_added", "bytes_removed")


@click.command(
    "history", short_help="Commits, and when and why each compaction ran.", epilog="Example: lakehouse history silver/flights --limit 10"
)
@click.argument("table", shell_complete=complete_table)
@click.option("--limit", type=click.IntRange(min=1), help="Only so many of the newest commits.")
@click.option("--compactions", is_flag=True, help="Only compactions.")
@json_option
def history_command(table: str, limit: int | None, compactions: bool, as_json: bool) -> None:
    """Show the commits of TABLE that its log still holds, newest first; no JVM is started.

    Of each compaction: when and why it ran, and what was predicted beside what happened.
    """
    opened = open_declared()
    [wanted] = opened.choose([table])
    facts = opened.lake.facts(wanted.key)
    if facts is None:
        raise Refused(f"history {table}: the table is declared and does not exist yet; write it first: lakehouse materialize {table}")
    commits = [commit for commit in reversed(facts.history.commits) if not compactions or is_compaction(commit)][:limit]
    if as_json:
        write_json({"table": table, "version": facts.layout.version, "commits": [_document(commit) for commit in commits]})
    else:
        _print(commits)


def is_compaction(commit: Commit) -> bool:
    """Whether the commit is an OPTIMIZE, ours or another's."""
    return commit.operation == "OPTIMIZE"


def prediction(commit: Commit) -> dict[str, Any] | None:
    """The plan that our compaction wrote into its commit; `None` for commits of others."""
    try:
        plan = json.loads(commit.user_metadata or "")["plan"]
    except (ValueError, KeyError, TypeError):
        return None
    return plan if isinstance(plan, dict) and all(isinstance(plan.get(name), int) for name in _PREDICTED) else None


def _document(commit: Commit) -> dict[str, Any]:
    return {
        "version": commit.version,
        "committed_ms": commit.committed_ms,
        "operation": commit.operation,
        "changed_data": commit.changed_data,
        "files_added": len(commit.added_paths),
        "files_removed": len(commit.removed_paths),
        "bytes_added": commit.added_bytes,
        "bytes_removed": commit.removed_bytes,
        "compaction": _compaction(commit) if is_compaction(commit) else None,
    }


def _compaction(commit: Commit) -> dict[str, Any]:
    told = prediction(commit) or {}
    return {
        "reason": told.get("reason"),
        "sentence": told.get("sentence"),
        **{f"predicted_{name}": told.get(name) for name in _PREDICTED},
        "actual_files_removed": len(commit.removed_paths),
        "actual_files_added": len(commit.added_paths),
        "actual_bytes_removed": commit.removed_bytes,
    }


def _print(commits: list[Commit]) -> None:
    if not commits:
        tell("no such commit in the log")
        return
    heads = ("version", "time", "operation", "files +", "files -", "bytes +", "bytes -", "")
    rows = [_row(commit) for commit in commits]
    print_grid(heads, rows, numbers=("version", *heads[3:7]), style=lambda row: "cyan" if row[2] == "OPTIMIZE" else "")


def _row(commit: Commit) -> tuple[str, ...]:
    files = (count_text(len(commit.added_paths)), count_text(len(commit.removed_paths)))
    sizes = (bytes_text(commit.added_bytes), bytes_text(commit.removed_bytes))
    return (str(commit.version), time_text(commit.committed_ms), commit.operation, *files, *sizes, _account(commit))


def _account(commit: Commit) -> str:
    """Why a compaction ran, and in what it was other than predicted."""
    if not is_compaction(commit):
        return "" if commit.changed_data else "no row changed"
    told = _compaction(commit)
    if told["sentence"] is None:
        return "not by this program: no prediction"
    pairs = {name: (told[f"predicted_{name}"], told[f"actual_{name}"]) for name in _PREDICTED}
    wrong = [f"{name.replace('_', ' ')} {said:,}" for name, (said, was) in pairs.items() if said != was]
    return f"{told['sentence']}; {'predicted otherwise: ' + ', '.join(wrong) if wrong else 'as predicted'}"
