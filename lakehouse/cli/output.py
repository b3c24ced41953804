"""What people and programs get to see: results on standard output, everything else on standard error."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import IO, Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

# What a table is given where nobody looks at it: wide enough that no sentence is broken for a program that greps.
_PIPE_WIDTH = 220
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option `--json`, as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output, nothing else (docs/terminal.md).")(
        command
    )


def write_json(document: Any) -> None:
    """One JSON document on standard output."""
    click.echo(json.dumps(document, indent=2))


def tell(line: str) -> None:
    """A line for the person, on standard error."""
    click.echo(line, err=True)


def console(stream: IO[str] | None = None) -> Console:
    """Where to print to, standard output as it is now unless a stream is given."""
    stream = stream or sys.stdout
    return Console(file=stream, highlight=False, markup=False, emoji=False, width=None if stream.isatty() else _PIPE_WIDTH)


def print_grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    style: Callable[[Sequence[str]], str] | None = None,
) -> None:
    """A table on standard output; columns in `numbers` are right-aligned, `style` colours a row."""
    grid = Grid(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        grid.add_column(head, justify="right" if head in numbers else "left", no_wrap=place < len(heads) - 1, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row), style=style(row) if style else None)
    out = console()
    with out.capture() as printed:
        out.print(grid)
    click.echo("\n".join(line.rstrip() for line in printed.get().splitlines() if line.strip()))


def bytes_text(count: int | None) -> str:
    """`1.5 MiB`; `-` where it is unknown."""
    if count is None:
        return "-"
    if count < 1000:
        return f"{count} B"
    size, unit = float(count), "B"
    while size >= 999.95 and unit != _UNITS[-1]:
        size, unit = size / 1024, _UNITS[_UNITS.index(unit) + 1]
    return f"{size:.1f} {unit}"


def count_text(count: int | None) -> str:
    """`12,345`; `-` where it is unknown."""
    return "-" if count is None else f"{count:,}"


def time_text(ms: int | None) -> str:
    """`2013-01-08 05:00:00 UTC`; `-` where it is unknown."""
    return "-" if ms is None else f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
