"""`lakehouse sql`: reads tables by SQL."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import accumulate, islice
from math import isfinite
from typing import Any

import click

from lakehouse.base.errors import Refused
from lakehouse.base.text import printable
from lakehouse.cli.context import LakeContext, open_declared
from lakehouse.cli.output import console, flag, json_option, print_grid, tell, write_csv, write_json
from lakehouse.cli.server_command import driver_for_command
from lakehouse.lake.lake import Lake
from lakehouse.lake.state_tables import OPERATIONS
from lakehouse.query.plan import plan_query
from lakehouse.query.run import (
    UnreadableError,
    query_deltalake,
    query_errors,
    query_spark,
    show_tables,
)

# What a grid shows at most.
_MOST_ROWS = 50
_LEAST_CELL_WIDTH = 30
_GAP = 2
# deltalake's SQL has no such clause.
_BY_TIME = re.compile(r"\bTIMESTAMP\s+AS\s+OF\b", re.IGNORECASE)


@click.command("sql", epilog='Example: lakehouse sql "SELECT * FROM gold.carrier_daily LIMIT 10"')
@click.argument("statement")
@flag("--spark", "by_spark", help="Run the statement in Spark SQL.")
@flag("--csv", "as_csv", help="Print all rows as CSV.")
@json_option
def sql_command(statement: str, by_spark: bool, as_csv: bool, as_json: bool) -> None:
    """Read tables by SQL. STATEMENT is a SELECT, WITH, DESCRIBE or SHOW TABLES.

    A table's name is its key with a dot, as in gold.carrier_daily. Add VERSION AS OF 12 for an
    older version.

    No JVM starts, unless deltalake cannot read a table, or a table has TIMESTAMP AS OF. Spark
    answers then.
    """
    if as_csv and as_json:
        raise Refused("sql: --csv and --json exclude each other. Use one of them")
    context = open_declared()
    most_rows = None if as_csv or as_json else _MOST_ROWS + 1
    keys = known_names(context)
    with query_errors(keys):
        answer = _answer(context.lake, statement, keys, by_spark=by_spark, most_rows=most_rows)
        names = answer.schema.names
        rows = islice(_rows(answer), most_rows)
        if as_json:
            documents = [dict(zip(names, row, strict=True)) for row in rows]
            write_json({"columns": names, "rows": documents})
        elif as_csv:
            write_csv([names])
            write_csv(["" if value is None else _text(value) for value in row] for row in rows)
        else:
            _print_grid(names, [*rows])


def known_names(context: LakeContext) -> dict[str, str]:
    """Maps the names of the declared tables, and of the lake's own tables, to their keys."""
    inventory = f"inventory/{context.lake.store.bucket}"
    keys = {
        inventory: inventory,
        "costs/chargeback": "costs/chargeback",
        "lakehouse/operations": OPERATIONS,
    }
    for table in context.tables.values():
        keys[table.asset_key] = table.key
        for folder, declared in (("quarantine", table.source), ("archive", table.archive)):
            if declared:
                keys[f"{folder}/{table.asset_key}"] = f"{folder}/{table.key}"
    return keys


def _answer(
    lake: Lake,
    statement: str,
    keys: Mapping[str, str],
    *,
    by_spark: bool,
    most_rows: int | None,
) -> Any:
    """The rows as a stream of Arrow batches."""
    if statement.strip(" ;\n").upper() == "SHOW TABLES":
        return show_tables(lake, keys)
    plan = plan_query(statement, keys)
    if not by_spark and not _BY_TIME.search(statement):
        try:
            return query_deltalake(lake, plan)
        except UnreadableError as error:
            tell(f"{error}; Spark answers")
    with driver_for_command(lake.settings):
        return query_spark(lake, plan, most_rows=most_rows)


def _rows(reader: Any) -> Iterator[list[Any]]:
    for batch in reader:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield [_plain(value) for value in row]


def _print_grid(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints the first rows, and the first columns that fit into the terminal."""
    width = console().width
    most_characters = max(_LEAST_CELL_WIDTH, width // len(names) - _GAP)
    lines = [
        [_shortened(_text(value), most_characters) for value in row]
        for row in (names, *rows[:_MOST_ROWS])
    ]
    widths = accumulate(max(map(len, column)) + _GAP for column in zip(*lines, strict=True))
    shown = max(1, sum(used <= width for used in widths))
    heads, *cells = [line[:shown] for line in lines]
    print_grid(heads, cells)
    cut = [f"the first {len(cells)} rows"] if len(rows) > _MOST_ROWS else []
    if shown < len(names):
        cut.append(f"{shown} of {len(names)} columns")
    if cut:
        tell(f"{' and '.join(cut)}; --csv and --json print all")


def _shortened(text: str, most: int) -> str:
    text = printable(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """The value as JSON has it. What JSON lacks, and decimals, are texts."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if isfinite(value):
            return value
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return str(value)
