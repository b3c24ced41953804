"""`lakehouse schema`: the columns of a table that is loaded from landed files, and where each comes from."""

from typing import Any

import click

from lakehouse.cli.context import complete_table, open_declared
from lakehouse.cli.output import json_option, print_grid, time_text, write_json
from lakehouse.core.declaration.column_names import field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.undeclared import AddedColumn, columns_in_force
from lakehouse.engine.journal.landed_batches import LandedBatches


@click.command(
    "schema",
    short_help="The columns of a landed table, and where each comes from.",
    epilog="Example: lakehouse schema bronze/orders",
)
@click.argument("table", shell_complete=complete_table)
@json_option
def schema_command(table: str, as_json: bool) -> None:
    """Show the columns that landed files give TABLE: those that its declaration names, and those that were added since fields landed that
    it does not name, each with the time, the file and the policy. No JVM is started.
    """
    opened = open_declared()
    [wanted] = opened.choose([table])
    if wanted.source is None:
        raise Refused(f"schema {table}: it is made from other tables; accepted: a table that is loaded from landed files")
    added = LandedBatches(opened.lake.store, wanted.key, prefix=wanted.source.prefix).ledger().columns
    columns = [*_declared(wanted.source), *map(_added, columns_in_force(added, wanted.source))]
    if as_json:
        write_json({"table": wanted.key, "new_columns": wanted.source.new_columns, "columns": columns})
        return
    rows = [
        (each["name"], each["type"], each["by"], "" if each["at_ms"] is None else time_text(each["at_ms"]), each["file"] or "")
        for each in columns
    ]
    print_grid(("column", "type", "by", "came", "file"), rows)


def _declared(landing: Landing) -> list[dict[str, Any]]:
    declared = {**dict(field_types(landing.schema)), **landing.derived}
    found = ((name, declared[name], "derived" if name in landing.derived else "declared") for name in landing.column_names)
    return [{"name": name, "type": kind, "by": by, "at_ms": None, "file": None} for name, kind, by in found]


def _added(column: AddedColumn) -> dict[str, Any]:
    return {"name": column.name, "type": column.type, "by": column.policy, "at_ms": column.at_ms, "file": column.file}
