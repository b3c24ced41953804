"""`lakehouse backtest`: replays the log of any Delta table under another policy."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import click

from lakehouse.backtest.plan import Replay, bytes_ingested, real_replay, replay
from lakehouse.base.errors import Refused
from lakehouse.base.text import Document
from lakehouse.cli.context import open_tables, table_argument
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    flag,
    json_option,
    print_grid,
    show,
    write_json,
)
from lakehouse.declare.policies import AfterWrite, Scheduled, policy_for
from lakehouse.delta.log.read_log import read_file_history
from lakehouse.delta.snapshot import FileHistory

_MIB = 2**20


@click.command("backtest", epilog="Example: lakehouse backtest bronze/weather --min-small-files 8")
@table_argument
@click.option("--min-small-files", type=click.IntRange(min=2), help="Compact from this many on.")
@click.option("--target-mib", type=click.IntRange(min=1), help="Target file size in MiB.")
@click.option("--cooldown-minutes", type=click.FloatRange(min=0), help="Pause after a compaction.")
@flag("--after-write", help="Compact after each write.")
@click.option("--schedule", metavar="CRON", help="Compact by the clock (UTC).")
@json_option
def backtest_command(
    table: str,
    min_small_files: int | None,
    target_mib: int | None,
    cooldown_minutes: float | None,
    after_write: bool,
    schedule: str | None,
    as_json: bool,
) -> None:
    """Replay a table's log under another policy. Does not start a JVM.

    Shows compactions, bytes rewritten and file counts, if TABLE had always had that policy, next to
    the policy in force, no compaction, and the real past. TABLE is a declared table, or the path or
    s3:// URI of any Delta table. An undeclared table gets a layer's default policy.
    """
    if after_write and schedule:
        raise Refused("backtest: use either --after-write or --schedule")
    strategy = AfterWrite() if after_write else None
    if schedule:
        strategy = Scheduled(cron=schedule)
    context, [subject] = open_tables((table,))
    changes: dict[str, Any] = {
        "min_small_files": min_small_files,
        "target_file_bytes": target_mib and target_mib * _MIB,
        "cooldown_minutes": cooldown_minutes,
        "strategy": strategy,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    in_force = subject.compaction_policy
    policies = {"in_force": in_force, "none": replace(in_force, mode="off")}
    if changes:
        given = replace(subject.compaction, mode="automatic", **changes)
        policies = {"given": policy_for(subject.layer, given), **policies}
    uri = context.lake.table_uri(subject.key)
    history = read_file_history(context.lake.store, subject.key, uri=uri)
    if history is None:
        raise Refused(
            f"backtest of {subject.key}: there is no Delta table at {uri}. "
            "Use a declared table, a path or a URI"
        )
    replays = {name: replay(history, policy) for name, policy in policies.items()}
    replays["really"] = real_replay(history)
    if as_json:
        write_json(_document(history, replays))
    else:
        _print(history, replays)


def _document(history: FileHistory, replays: Mapping[str, Replay]) -> Document:
    """The JSON document (docs/reference/json.md)."""
    return {
        "table": history.table,
        "first_version": history.first_version,
        "bytes_ingested": bytes_ingested(history),
        "replays": [
            {
                "name": name,
                "mean_file_count": each.mean_file_count,
                **asdict(each),
            }
            for name, each in replays.items()
        ],
    }


def _print(history: FileHistory, replays: Mapping[str, Replay]) -> None:
    numbers = ("compactions", "rewritten", "mean files", "files at the end")
    rows = [
        (
            name.replace("_", " "),
            count_text(each.compaction_count),
            bytes_text(each.bytes_rewritten),
            f"{each.mean_file_count:,.1f}",
            count_text(each.file_counts[-1] if each.file_counts else 0),
        )
        for name, each in replays.items()
    ]
    print_grid(("policy", *numbers), rows, numbers=numbers)
    show(
        f"writers added {bytes_text(bytes_ingested(history))} since version {history.first_version}"
    )
