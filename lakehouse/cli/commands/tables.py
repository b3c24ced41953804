"""`lakehouse tables`: the declared tables, and the state of each."""

from collections.abc import Sequence
from typing import Any

import click

from lakehouse.cli.context import LakeContext, open_declared, print_errors
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    time_text,
    write_json,
)
from lakehouse.core.adoption.adopted_file import adopted_table
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_sentence
from lakehouse.core.declaration.write_modes import Append, History, Merge, Overwrite, WriteMode
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Transient
from lakehouse.engine.adoption.find_tables import undeclared_tables
from lakehouse.engine.read_each_table import Found, for_each_table


@click.command("tables", epilog="Example: lakehouse tables")
@json_option
def tables_command(as_json: bool) -> int:
    """List the declared tables, where their rows come from, and the state of each.

    Undeclared tables in the lake's layers (bronze/, silver/, gold/) come last.
    """
    context = open_declared()

    def read(table: Table) -> Snapshot | None:
        facts = context.lake.facts(table.key)
        return None if facts is None else facts.snapshot

    declared = for_each_table(context.choose(()), read)
    undeclared = _find_undeclared(context, declared)
    readings = [*declared, *for_each_table(undeclared, read)]
    if as_json:
        write_json([_document(each, context) for each in readings])
    else:
        heads = ("table", "from", "write", "version", "files", "bytes", "rows", "last commit")
        print_grid(heads, [_row(each, context) for each in readings], numbers=heads[3:7])
        if undeclared:
            show(undeclared_sentence([table.key for table in undeclared]), style="yellow")
    return print_errors(readings)


def _find_undeclared(
    context: LakeContext, readings: Sequence[Found[Snapshot]]
) -> tuple[Table, ...]:
    """The undeclared tables in the lake, each as if it were adopted.

    The result is empty if a reading failed with `Transient`, because storage may not answer.
    """
    if any(isinstance(each.error, Transient) for each in readings):
        return ()
    root = context.lake.settings.root
    keys = undeclared_tables(context.lake, context.tables.values())
    return tuple(adopted_table(key, f"{root}/{key}") for key in keys)


def _document(reading: Found[Snapshot], context: LakeContext) -> dict[str, Any]:
    table = reading.table
    is_declared = table.key in context.tables
    snapshot = reading.value
    return {
        "table": table.key,
        "declared": is_declared,
        "description": table.description if is_declared else undeclared_sentence([table.key]),
        "landing": table.source.prefix if table.source else None,
        "inputs": [each.key for each in table.inputs],
        "write": type(table.write).__name__.lower() if is_declared else None,
        "partition_by": list(table.write.partition_by) if isinstance(table.write, Append) else [],
        "merge_keys": list(table.write.keys) if isinstance(table.write, Merge | History) else [],
        "file_count": snapshot.file_count if snapshot else 0,
        "size_bytes": snapshot.size_bytes if snapshot else 0,
        "version": snapshot.version if snapshot else None,
        "row_count": snapshot.row_count if snapshot else None,
        "committed_ms": snapshot.committed_ms if snapshot else None,
    }


def _row(reading: Found[Snapshot], context: LakeContext) -> tuple[str, ...]:
    table = reading.table
    snapshot = reading.value
    source = table.source.prefix if table.source else ", ".join(each.key for each in table.inputs)
    write = _write_text(table.write) if table.key in context.tables else "not declared"
    if snapshot is None:
        state = type(reading.error).__name__ if reading.error else "not written yet"
        return (table.key, source, write, "-", "-", "-", "-", state)
    return (
        table.key,
        source,
        write,
        str(snapshot.version),
        count_text(snapshot.file_count),
        bytes_text(snapshot.size_bytes),
        count_text(snapshot.row_count),
        time_text(snapshot.committed_ms),
    )


def _write_text(write: WriteMode) -> str:
    match write:
        case Append(partition_by=()):
            return "append"
        case Append(partition_by=columns):
            return f"append by {', '.join(columns)}"
        case Merge(keys=keys):
            return f"merge on {', '.join(keys)}"
        case History(keys=keys):
            return f"history of {', '.join(keys)}"
        case Overwrite():
            return "overwrite"
        case Adopted(uri=uri):
            return f"by other programs, at {uri}"
