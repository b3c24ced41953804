"""`lakehouse schema`: the columns of a table loaded from landed files, and their origins."""

from collections.abc import Sequence
from dataclasses import replace
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
    """Show the columns of TABLE, which is loaded from landed files, and where each comes from.

    Lists the declared columns, and each column that was added for an undeclared field, with the
    time, the file and the policy by which it was added. If no schema is declared, the columns that
    were inferred from the first batch are listed first. Does not start a JVM.
    """
    context, declared_table = open_landed(table, command="schema")
    table = declared_table.key
    landing = declared_table.landing
    batches = PlannedBatches(context.lake.store, table, prefix=landing.prefix)
    history = batches.ledger().columns  # with the names under which the columns were added
    new_names = declared_table.renamed
    renamed = [replace(column, name=new_names.get(column.name, column.name)) for column in history]
    in_force = columns_in_force(renamed, landing)
    inferred = list[AddedColumn]()
    if landing.schema is None:
        inferred = [column for column in in_force if column.policy == INFERRED]
    added = [column for column in in_force if column not in inferred]
    columns = [*map(_added, inferred), *_declared(landing, renamed), *map(_added, added)]
    schema = None
    if inferred:
        schema = "inferred"
    elif landing.schema:
        schema = "declared"
    if as_json:
        write_json(
            {
                "table": table,
                "schema": schema,
                "new_columns": landing.new_columns,
                "columns": columns,
                "history": [*map(_added, history)],
            }
        )
        return
    if schema is None:
        show(
            f"{table}: no schema is declared, and none has been inferred yet. It will be inferred "
            "from the first batch of landed files"
        )
    times = ["" if each["at_ms"] is None else time_text(each["at_ms"]) for each in columns]
    rows = [
        (each["name"], each["type"], each["by"], at, each["file"] or "")
        for each, at in zip(columns, times, strict=True)
    ]
    print_grid(("column", "type", "by", "added", "file"), rows)


def _declared(landing: Landing, history: Sequence[AddedColumn]) -> list[dict[str, Any]]:
    """The declared columns; with time and file if a column was added before it was declared.

    `history` has all added columns, with their present names.
    """
    types = {**dict(field_types(landing.schema)), **landing.derived}
    added = {column.name: column for column in history}
    documents = list[dict[str, Any]]()
    for name in landing.column_names:
        origin = added.get(name)
        documents.append(
            {
                "name": name,
                "type": types[name],
                "by": "derived" if name in landing.derived else "declared",
                "at_ms": None if origin is None else origin.at_ms,
                "file": None if origin is None else origin.file,
            }
        )
    return documents


def _added(column: AddedColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "by": column.policy,
        "at_ms": column.at_ms,
        "file": column.file,
    }
