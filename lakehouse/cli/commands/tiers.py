"""`lakehouse tiers`: moves removed files into a cheaper S3 storage class if that saves money."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from lakehouse.cli.context import complete_table, error_cell, open_declared, print_errors
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    write_json,
)
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.text import count_of, size_text
from lakehouse.core.tiers.plan import READ_AT_ONCE, TIER_CLASSES, TierPlan
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.read_each_table import Found
from lakehouse.engine.tiers import bucket_rule
from lakehouse.engine.tiers.apply import TierOutcome, apply, plan
from lakehouse.engine.vacuum.lake_facts import LakeFacts

_EXAMPLE = "Example: lakehouse tiers {} bronze/weather"
_class_option = click.option(
    "--to",
    "storage_class",
    type=click.Choice(TIER_CLASSES, case_sensitive=False),
    help="Use this class. Default: STANDARD_IA or GLACIER_IR, whichever saves more. Files in "
    "GLACIER or DEEP_ARCHIVE must be restored before an older version that needs them can be read.",
)


@click.group("tiers", epilog=_EXAMPLE.format("plan"))
def tiers_command() -> None:
    """Move removed files into a cheaper storage class until the vacuum, if that saves money.

    Works only on S3. A file that a table's newest version needs is not moved.
    """


@tiers_command.command("plan", epilog=_EXAMPLE.format("plan"))
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@_class_option
@json_option
def plan_command(tables: tuple[str, ...], storage_class: str | None, as_json: bool) -> int:
    """Show for each TABLE (default: all in the lake's folder) what a move would cost and save.

    Nothing is changed.
    """
    readings, _ = _each(tables, plan, storage_class)
    documents = [_document(each) for each in readings]
    if as_json:
        write_json({"tables": documents})
    else:
        _print(documents)
    return print_errors(readings)


@tiers_command.command("apply", epilog=_EXAMPLE.format("apply"))
@click.argument("tables", metavar="[TABLE]...", nargs=-1, shell_complete=complete_table)
@_class_option
@click.option("--dry-run", is_flag=True, help="List every file that would be tagged, and tag none.")
@click.option(
    "--install-rule",
    is_flag=True,
    help="Add the lifecycle rule to the bucket's rules. Default: print the rule.",
)
@json_option
def apply_command(
    tables: tuple[str, ...],
    storage_class: str | None,
    dry_run: bool,
    install_rule: bool,
    as_json: bool,
) -> int:
    """Tag the planned files of each TABLE (default: all in the lake's folder).

    A lifecycle rule of the bucket then moves the tagged files. Each file is checked against the
    newest version right before it is tagged. If a tagged file is needed again, because an older
    version was restored or cloned, its tag is removed.
    """
    readings, lake = _each(tables, plan if dry_run else apply, storage_class)
    documents = [_document(each) for each in readings]
    classes = sorted({name for each in documents for name in each.get("rule_classes", ())})
    rules = [bucket_rule.rule_of(lake, each) for each in classes]
    is_installed = install_rule and not dry_run
    if is_installed:
        for rule in rules:
            bucket_rule.install_rule(lake, rule)
    if as_json:
        write_json({"tables": documents, "rules": rules, "installed": is_installed})
        return print_errors(readings)
    _print(documents)
    if dry_run:
        _print_planned_files(documents)
    state = "must be added to the bucket's rules; --install-rule adds it"
    if is_installed:
        state = "is a rule of the bucket now"
    for rule in rules:
        show(f"This rule {state}:")
        for line in json.dumps(rule, indent=2).splitlines():
            show(line)
    return print_errors(readings)


def _each(
    tables: Sequence[str], act: Callable[..., TierPlan | TierOutcome | None], to: str | None
) -> tuple[list[Found[TierPlan | TierOutcome]], Any]:
    """What `act` returns for each table, or its error; and the lake.

    An error of one table does not stop the other tables.
    """
    context = open_declared()
    lake = context.lake
    if not lake.settings.on_s3:
        raise Refused(
            f"tiers: the lake {lake.settings.root} lies on a disk, which has no storage classes. "
            "Use a lake on S3"
        )
    chosen = [
        table for table in context.choose(tables) if tables or table.key not in lake.elsewhere
    ]
    facts = LakeFacts(lake, [*context.tables.values()], wanted={table.key for table in chosen})
    classes = (to,) if to else READ_AT_ONCE
    prices = load_price_book(lake.settings).tiers

    def one(table: Table) -> Found[TierPlan | TierOutcome]:
        try:
            value = act(facts, table, prices, classes=classes)
            return Found(table=table, value=value)
        except LakehouseError as error:
            return Found(table=table, error=error)

    return [one(table) for table in chosen], lake


def _document(reading: Found[TierPlan | TierOutcome]) -> dict[str, Any]:
    if reading.value is not None:
        return reading.value.as_json()
    return {"table": reading.table.key, "reason": reading.reason, "sentence": reading.sentence}


def _print(documents: Sequence[Mapping[str, Any]]) -> None:
    # Only the document of a plan or an outcome has a version.
    rows = [
        (
            each["table"],
            each.get("storage_class", "-"),
            count_text(each.get("files")),
            bytes_text(each.get("bytes")),
            f"{each['saved_usd']:.6f}" if "saved_usd" in each else "-",
            each["sentence"] if "version" in each else _no_plan(each),
        )
        for each in documents
    ]
    heads = ("table", "class", "files", "bytes", "saves USD", "")
    print_grid(heads, rows, numbers=heads[2:5])
    for each in documents:
        if each.get("dead_files"):
            show(f"{each['table']}: {_break_even_text(each)}")
        if each.get("files_left"):
            show(f"{each['table']}: {count_of(each['files_left'], 'file')} wait for the next run")
        if each.get("untag") and "untagged" not in each:
            show(f"{each['table']}: {count_of(len(each['untag']), 'live file')} would be untagged")
        if "actual_files" in each:
            tagged = count_of(each["actual_files"], "file")
            show(f"{each['table']}: {tagged} tagged, {len(each['untagged'])} untagged")
        for name, why in each.get("spared", {}).items():
            show(f"{each['table']}/{name} is not tagged: {why}")


def _print_planned_files(documents: Sequence[Mapping[str, Any]]) -> None:
    for each in documents:
        for name in each.get("paths", ()):
            show(f"{each['table']}/{name}")
        for name in each.get("untag", ()):
            show(f"{each['table']}/{name} would lose the tag")


def _no_plan(document: Mapping[str, Any]) -> str:
    if document["reason"] == "NO_TABLE":
        return document["sentence"]
    return error_cell(document["reason"].capitalize())


def _break_even_text(document: Mapping[str, Any]) -> str:
    """A sentence: after how many days the planned class saves money, by file size."""
    storage_class = document["storage_class"]
    points = list[str]()
    for each in document["break_even"]:
        if each["storage_class"] == storage_class:
            days = "never" if each["days"] is None else each["days"]
            points.append(f"{size_text(each['bytes'])} {days}")
    return f"days after which {storage_class} saves money, by file size: {', '.join(points)}"
