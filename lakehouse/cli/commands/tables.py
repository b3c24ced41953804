"""`lakehouse tables`: the declared tables, and the state of each."""

from collections.abc import Iterable, Iterator
from typing import Any

import click

from lakehouse.cli.context import (
    find_undeclared,
    open_declared,
    print_errors,
    show_once,
    show_undeclared,
)
from lakehouse.cli.output import (
    bytes_text,
    count_text,
    json_option,
    print_grid,
    time_text,
    write_json,
)
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_sentence
from lakehouse.core.declaration.write_modes import Append, History, Merge, Overwrite, WriteMode
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.reasons import Explanation
from lakehouse.engine.compaction.current_skip_reasons import hold_now
from lakehouse.engine.read_each_table import Found, for_each_table

# A table's snapshot (`None` if the table does not exist yet), and the reason why the compaction
# sensor must not compact the table now (`None` if it may).
ListedTable = tuple[Snapshot | None, Explanation | None]


@click.command("tables", epilog="Example: lakehouse tables")
@json_option
def tables_command(as_json: bool) -> int:
    """List the declared tables, and the state of each.

    Shows where rows come from, and which tables the compaction sensor skips and why. Undeclared
    tables in the lake's layers (bronze/, silver/, gold/) come last.
    """
    context = open_declared()

    def read(table: Table) -> ListedTable:
        facts = context.lake.facts(table.key)
        if facts is None:
            return None, hold_now(context.lake, table, None)
        return facts.snapshot, hold_now(context.lake, table, facts.history)

    def read_undeclared(table: Table) -> ListedTable:
        facts = context.lake.facts(table.key)
        return None if facts is None else facts.snapshot, None

    readings = for_each_table(context.choose(()), read)
    undeclared = find_undeclared(context, readings)
    undeclared_readings = for_each_table(undeclared, read_undeclared)
    if as_json:
        documents = [_document(each, is_declared=True) for each in readings]
        documents += [_document(each, is_declared=False) for each in undeclared_readings]
        write_json(documents)
    else:
        heads = ("table", "from", "write", "version", "files", "bytes", "rows", "last commit")
        rows = [_row(each, _write_text(each.table.write)) for each in readings]
        rows += [_row(each, "not declared") for each in undeclared_readings]
        print_grid(heads, rows, numbers=heads[3:7])
        show_once(_skip_sentences(readings))
        show_undeclared(undeclared)
    return print_errors([*readings, *undeclared_readings])


def _skip_sentences(readings: Iterable[Found[ListedTable]]) -> Iterator[tuple[str, str]]:
    """The key of each table that the compaction sensor skips, and a sentence that says why."""
    for each in readings:
        key = each.table.key
        _, hold = each.value or (None, None)
        if hold:
            yield key, f"the sensor skips {key}, {hold.reason.name}: {hold.sentence}"


def _document(reading: Found[ListedTable], *, is_declared: bool) -> dict[str, Any]:
    table = reading.table
    snapshot, hold = reading.value or (None, None)
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
        "hands_off": {"reason": hold.reason.name, "sentence": hold.sentence} if hold else None,
    }


def _row(reading: Found[ListedTable], write: str) -> tuple[str, ...]:
    table = reading.table
    snapshot, _ = reading.value or (None, None)
    source = table.source.prefix if table.source else ", ".join(each.key for each in table.inputs)
    declaration = (table.key, source, write)
    if snapshot is None:
        state = type(reading.error).__name__ if reading.error else "not written yet"
        return (*declaration, "-", "-", "-", "-", state)
    counts = (
        str(snapshot.version),
        count_text(snapshot.file_count),
        bytes_text(snapshot.size_bytes),
        count_text(snapshot.row_count),
    )
    return (*declaration, *counts, time_text(snapshot.committed_ms))


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
