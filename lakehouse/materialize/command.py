"""`lakehouse materialize` writes tables in order; `lakehouse tables` lists them."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from lakehouse.base.errors import Refused, Transient
from lakehouse.base.text import Document
from lakehouse.cli.context import (
    LakeContext,
    complete_table,
    nearest,
    open_declared,
    print_errors,
)
from lakehouse.cli.output import (
    attributes,
    bytes_text,
    count_text,
    json_option,
    print_grid,
    show,
    time_text,
    write_json,
)
from lakehouse.cli.server_command import driver_for_command
from lakehouse.declare.adopted import adopted_table
from lakehouse.declare.table import Table, undeclared_sentence
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Found, for_each_table, undeclared_tables
from lakehouse.land.ledger import planned_batches
from lakehouse.land.plan.batches import describe_set_aside

if TYPE_CHECKING:
    from lakehouse.cli.dagster_runs import AssetRun

_OF_SNAPSHOT = ("version", "row_count", "committed_ms")
_FIGURES = ("rows_written", "rows_quarantined", "files_read", "files_set_aside", "seconds")


@click.command(
    "materialize",
    epilog="Examples: lakehouse materialize; lakehouse materialize bronze/weather silver/flights",
)
@click.argument("selections", metavar="[SELECTION]...", nargs=-1, shell_complete=complete_table)
@json_option
def materialize_command(selections: tuple[str, ...], as_json: bool) -> int:
    """Write tables and run their checks, inputs first, through Dagster.

    Each SELECTION is a table (silver/flights) or a layer (bronze). By default, all tables except
    adopted tables are written. All landed files are loaded. A table without new input is not
    changed.
    """
    from lakehouse.cli.dagster_runs import materialize

    context = open_declared()
    tables = _select(selections, context)
    with driver_for_command(context.lake.settings):
        results = materialize(context.lake.settings, [table.asset_key for table in tables])
    runs = {table.key: run for table, run in zip(tables, results, strict=True)}
    documents = list[Document]()
    for table in tables:
        run = runs[table.key]
        if run.error:
            sentence = str(run.error)
        elif run.state == "done":
            sentence = str(run.metadata["lakehouse/outcome"])
        else:
            sentence = _why_skipped(table, runs, context)
        documents.append(run_document(table.key, run, sentence=sentence))
    if as_json:
        write_json(documents)
    else:
        for each in documents:
            if each["state"] == "skipped":
                show(f"{each['table']}: {each['sentence']}")
    return print_errors(
        [Found(table=table, value=runs[table.key], error=runs[table.key].error) for table in tables]
    )


def _select(selections: Sequence[str], context: LakeContext) -> list[Table]:
    """The tables to write, each once, inputs first. By default, all except adopted tables.

    Raises:
        Refused: a selection is an adopted table, or neither a table nor a layer.
    """
    declared = context.tables.values()
    written_here = [table for table in declared if not table.adopted]
    # A table's key, also that of the folder with `location=`, or its layer selects it.
    names = {table.key: {table.asset_key, table.key, table.layer} for table in written_here}
    for selection in sorted({*selections}.difference(*names.values())):
        if selection in context.tables:
            raise Refused(
                f"materialize {selection}: other programs write this adopted table. Use lakehouse "
                f"compact {selection} or lakehouse vacuum {selection}"
            )
        near = nearest(selection, context.tables)
        raise Refused(f"materialize {selection!r}: neither a table nor a layer; {near}")
    return [table for table in written_here if not selections or names[table.key] & {*selections}]


def run_document(key: str, run: "AssetRun", *, sentence: str) -> Document:
    """The JSON document of one table."""
    return {
        "table": key,
        "state": run.state,
        "version": run.metadata.get("lakehouse/version"),
        **{name: run.metadata.get(f"lakehouse/{name}", 0) for name in _FIGURES},
        "sentence": sentence,
        "error": type(run.error).__name__ if run.error else None,
        "run_id": run.run_id,
    }


def _why_skipped(table: Table, runs: Mapping[str, "AssetRun"], context: LakeContext) -> str:
    """Why the run recorded nothing for a table, although the table did not fail.

    A derived table is skipped if an input in the same run failed or was skipped. If an input
    outside the run does not exist, the derived table is not skipped: its own step fails.
    """
    if table.source is not None:
        ledger = planned_batches(context.lake, table).ledger()
        set_aside = describe_set_aside(ledger, table.source)
        nothing_landed = "no file to load has landed"
        return f"{nothing_landed}; {set_aside}" if set_aside else nothing_landed
    for source in table.inputs:
        if source.key in runs and runs[source.key].state != "done":
            return f"not run: its input {source.key} failed or does not exist yet"
    return f"run {runs[table.key].run_id} recorded nothing. Look at it on Dagster's page"


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

    readings = for_each_table(context.choose(()), read)
    undeclared = ()
    # After a reading failed with `Transient`, storage may not answer.
    if not any(isinstance(each.error, Transient) for each in readings):
        undeclared = undeclared_tables(context.lake, context.tables.values())
    root = context.lake.settings.root
    as_adopted = [adopted_table(key, f"{root}/{key}") for key in undeclared]
    readings += for_each_table(as_adopted, read)
    documents = [_table_document(each, context) for each in readings]
    if as_json:
        write_json(documents)
    else:
        heads = ("table", "from", "write", "version", "files", "bytes", "rows", "last commit")
        print_grid(heads, [*map(_table_row, readings, documents)], numbers=heads[3:7])
        if undeclared:
            show(undeclared_sentence(undeclared), style="yellow")
    return print_errors(readings)


def _table_document(reading: Found[Snapshot], context: LakeContext) -> Document:
    table = reading.table
    is_declared = table.key in context.tables
    figures: Document = {"file_count": 0, "size_bytes": 0} | dict.fromkeys(_OF_SNAPSHOT)
    if reading.value:
        figures = attributes(reading.value, *figures)
    return {
        "table": table.key,
        "declared": is_declared,
        "description": table.description if is_declared else undeclared_sentence([table.key]),
        "landing": table.source.prefix if table.source else None,
        "inputs": [each.key for each in table.inputs],
        "write": type(table.write).__name__.lower() if is_declared else None,
        "partition_by": [*table.partition_by],
        "merge_keys": list(table.merge.keys) if table.merge else [],
        **figures,
    }


def _table_row(reading: Found[Snapshot], document: Document) -> tuple[str, ...]:
    table = reading.table
    source = document["landing"] or ", ".join(document["inputs"])
    write = document["write"] or "not declared"
    if table.adopted and document["declared"]:
        source = table.adopted.uri
    if document["partition_by"]:
        write += f" by {', '.join(document['partition_by'])}"
    if document["merge_keys"]:
        write += f" on {', '.join(document['merge_keys'])}"
    snapshot = reading.value
    if snapshot is None:
        state = type(reading.error).__name__ if reading.error else "not written yet"
        figures = ("-", "-", "-", "-", state)
    else:
        figures = (
            str(snapshot.version),
            count_text(snapshot.file_count),
            bytes_text(snapshot.size_bytes),
            count_text(snapshot.row_count),
            time_text(snapshot.committed_ms),
        )
    return (table.key, source, write, *figures)
