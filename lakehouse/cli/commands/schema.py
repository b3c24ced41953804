"""`lakehouse schema`: the columns of a landed table, or the schema to declare for a file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lakehouse.cli.context import complete_table, open_declared, open_landed
from lakehouse.cli.output import json_option, print_grid, show, time_text, write_json
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.undeclared import AddedColumn, columns_in_force
from lakehouse.engine.journal.planned_batches import PlannedBatches

_ENDINGS = (".json", ".jsonl", ".csv", ".tsv", ".txt", ".parquet", ".avro", ".gz", ".zst")


@click.command("schema", epilog="Example: lakehouse schema orders-0001.csv")
@click.argument("table_or_file", shell_complete=complete_table)
@json_option
def schema_command(table_or_file: str, as_json: bool) -> None:
    """Show the columns of TABLE, or print a schema to declare for FILE.

    For a table that is loaded from landed files: its declared columns, and each column that was
    added for an undeclared field, with the time, the file and the policy by which it was added.

    For a file, on this machine or below the lake's root: a Landing to copy, with the types that a
    Parquet or Avro file records, or that the values of a CSV or JSON file have. Does not start a
    JVM.
    """
    if Path(table_or_file).is_file() or table_or_file.lower().endswith(_ENDINGS):
        _show_file(table_or_file, as_json=as_json)
    else:
        _show_table(table_or_file, as_json=as_json)


def _show_file(name: str, *, as_json: bool) -> None:
    # Imported here, because only files need it.
    from lakehouse.engine.ingest.schema_of_file import file_schema

    path = Path(name)
    data = path.read_bytes() if path.is_file() else open_declared().lake.store.read(name)
    found = file_schema(name, data)
    schema = found.schema
    csv = {"delimiter": schema.delimiter, "decimal": schema.decimal}
    plain = {"delimiter": ",", "decimal": "."}
    csv = {option: value for option, value in csv.items() if value != plain[option]}
    if as_json:
        write_json(
            {
                "file": name,
                "format": found.format,
                "schema": schema.ddl,
                "csv": csv,
                "null_value": schema.null_value,
                "encoding": found.encoding,
                "left_out": schema.left_out,
            }
        )
        return
    show("Landing(")
    show('    prefix="landing/…/",')
    show(f'    format="{found.format}",')
    show(f'    schema="""{schema.ddl}""",' if '"' in schema.ddl else f'    schema="{schema.ddl}",')
    if csv:
        options = ", ".join(f"{option}={value!r}" for option, value in csv.items())
        show(f"    csv=Csv({options}),")
    if schema.null_value is not None:
        show(f"    null_value={schema.null_value!r},")
    if found.encoding != "utf-8":
        show(f"    encoding={found.encoding!r},")
    show(")")
    if schema.left_out:
        names = ", ".join(map(repr, schema.left_out))
        show(f"# Names that cannot be columns, whose values are kept in _rescued: {names}")


def _show_table(table: str, *, as_json: bool) -> None:
    context, declared_table = open_landed(table, command="schema")
    table = declared_table.key
    landing = declared_table.landing
    batches = PlannedBatches(context.lake.store, table, prefix=landing.prefix)
    history = batches.ledger().columns  # with the names under which the columns were added
    new_names = declared_table.renamed
    renamed = [replace(column, name=new_names.get(column.name, column.name)) for column in history]
    added = columns_in_force(renamed, landing)
    columns = [*_declared(landing, renamed), *map(_added, added)]
    if as_json:
        write_json(
            {
                "table": table,
                "new_columns": landing.new_columns,
                "columns": columns,
                "history": [*map(_added, history)],
            }
        )
        return
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
