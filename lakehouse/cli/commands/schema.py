"""`lakehouse schema`: the columns of a table of landed files, and where each comes from."""

from collections.abc import Sequence
from typing import Any

import click

from lakehouse.cli.context import complete_table, open_landed
from lakehouse.cli.output import json_option, print_grid, show, time_text, write_json
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.inferred import INFERRED
from lakehouse.core.ingest.undeclared import AddedColumn, columns_in_force
from lakehouse.engine.journal.planned_batches import PlannedBatches


@click.command("schema", epilog="Example: lakehouse schema bronze/orders")
@click.argument("table", shell_complete=complete_table)
@json_option
def schema_command(table: str, as_json: bool) -> None:
    """Show the columns of TABLE, and where each comes from.

    These are the declared columns and those added for undeclared fields, with time, file and policy
    of each. Without a declared schema they are the inferred columns, as they were pinned. No JVM.
    """
    opened, wanted = open_landed(table, asked="schema")
    landing = wanted.landing
    came = PlannedBatches(opened.lake.store, wanted.key, prefix=landing.prefix).ledger().columns
    in_force = columns_in_force(came, landing)
    pinned = [column for column in in_force if landing.schema is None and column.policy == INFERRED]
    added = [column for column in in_force if column not in pinned]
    columns = [*map(_came, pinned), *_declared(landing, came), *map(_came, added)]
    schema = "inferred" if pinned else "declared" if landing.schema else None
    if as_json:
        document = {
            "table": wanted.key,
            "schema": schema,
            "new_columns": landing.new_columns,
            "columns": columns,
        }
        write_json({**document, "history": [*map(_came, came)]})
        return
    if schema is None:
        show(
            f"{wanted.key}: no schema is declared, and none was inferred yet. The first batch of "
            "landed files decides"
        )
    times = ["" if each["at_ms"] is None else time_text(each["at_ms"]) for each in columns]
    rows = [
        (each["name"], each["type"], each["by"], at, each["file"] or "")
        for each, at in zip(columns, times, strict=True)
    ]
    print_grid(("column", "type", "by", "came", "file"), rows)


def _declared(landing: Landing, came: Sequence[AddedColumn]) -> list[dict[str, Any]]:
    """The declared columns. One that was added before it was declared has its time and file."""
    declared, before = (
        {**dict(field_types(landing.schema)), **landing.derived},
        {column.name: column for column in came},
    )
    found = (
        (name, declared[name], "derived" if name in landing.derived else "declared")
        for name in landing.column_names
    )
    return [
        {
            "name": name,
            "type": kind,
            "by": by,
            "at_ms": since and since.at_ms,
            "file": since and since.file,
        }
        for name, kind, by in found
        for since in (before.get(name),)
    ]


def _came(column: AddedColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "by": column.policy,
        "at_ms": column.at_ms,
        "file": column.file,
    }
