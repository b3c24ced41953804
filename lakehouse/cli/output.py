"""Prints results to standard output, and everything else to standard error.

All commands print with these functions, which escape control characters in text from outside
(`printable`).
"""

import csv
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import IO, Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.status import Status
from rich.text import Text

from lakehouse.base.operation import FIGURE_HEADS, figures_in
from lakehouse.base.text import Document, printable, size_text, utc_text

# The width of tables that are printed to a pipe: so large that grep finds most sentences on one
# line.
_PIPE_WIDTH = 220
# Spaces between two columns.
_GAP = 2
# If the last column has less room than this, and less than its longest cell needs, its cells are
# printed below their rows.
_LEAST_ROOM = 45

# An option without a value.
flag = partial(click.option, is_flag=True)
# The option `--json`. Commands receive it as `as_json`.
json_option = flag(
    "--json",
    "as_json",
    help="Print one JSON document on standard output, and nothing else (docs/reference/json.md).",
)


def attributes(value: object, *names: str) -> Document:
    """The attributes of a value with these names."""
    return {name: getattr(value, name) for name in names}


def write_json(document: Any) -> None:
    """Prints one JSON document."""
    click.echo(json.dumps(document, indent=2))


def write_csv(rows: Iterable[Sequence[str]]) -> None:
    """Prints rows as CSV. Control characters are escaped only if a terminal would act on them."""
    is_terminal = sys.stdout.isatty()
    for row in rows:
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        text = line.getvalue()
        click.echo(printable(text, keep="\n\t") if is_terminal else text, nl=False)


def show(line: str = "", *, style: str = "") -> None:
    """Prints a line of the result. Line breaks in `line` are escaped."""
    if style:
        console().print(Text(printable(line)), style=style, soft_wrap=True)
    else:
        click.echo(printable(line))


def show_lines(text: str) -> None:
    """Prints a text line by line."""
    for line in text.splitlines():
        show(line)


def tell(text: str) -> None:
    """Prints a message, which may have several lines, to standard error."""
    click.echo(printable(text, keep="\n\t"), err=True)


def console(stream: IO[str] | None = None) -> Console:
    """A console for styles and spinners, on standard output unless a stream is given."""
    target = stream or sys.stdout
    return Console(
        file=target,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if target.isatty() else _PIPE_WIDTH,
    )


def working(text: str) -> Status:
    """Shows `text` with a spinner while the block runs, if standard error is a terminal."""
    return console(sys.stderr).status(text)


def print_grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
) -> None:
    """Prints a table; columns in `numbers` are right-aligned.

    If the terminal is too narrow, the cells of the last column are printed below their rows, and
    its head is omitted. No cell is truncated.
    """
    head_line, *lines = [[printable(cell) for cell in row] for row in (heads, *rows)]
    columns = zip(head_line, *lines, strict=True)
    *widths, last_width = [max(map(cell_len, column)) for column in columns]
    out = console()
    indent = sum(widths) + _GAP * len(widths)
    room = out.width - indent
    is_last_below = room < min(last_width, _LEAST_ROOM)

    def show_line(line: Sequence[str], style: str = "") -> None:
        text = ""
        for head, cell, width in zip(heads, line, widths, strict=False):
            space = " " * (width - cell_len(cell))
            text += space + cell if head in numbers else cell + space
            text += " " * _GAP
        last = line[-1].rjust(last_width) if heads[-1] in numbers else line[-1]
        for part in [""] if is_last_below else Text(last).wrap(out, room):
            show(f"{text}{part}".rstrip(), style=style)
            text = " " * indent

    show_line(head_line, "bold")
    click.echo("─" * (indent - _GAP if is_last_below else indent + min(last_width, room)))
    for line in lines:
        show_line(line)
        if is_last_below and line[-1]:
            out.print(Padding(Text(line[-1], style="dim"), (0, 0, 0, 4)))


def print_figures(document: Mapping[str, Any]) -> None:
    """Prints the predicted and actual figures in an outcome's document, if there are any."""
    if figures := figures_in(document):
        print_grid(FIGURE_HEADS, [each.cells for each in figures], numbers=FIGURE_HEADS[1:])


def bytes_text(count: int | None) -> str:
    """`1.5 MiB`, or `-` if unknown."""
    return "-" if count is None else size_text(count)


def count_text(count: int | None) -> str:
    """`12,345`, or `-` if unknown."""
    return "-" if count is None else f"{count:,}"


def time_text(ms: int | None) -> str:
    """`2013-01-08 05:00 UTC`, or `-` if unknown."""
    return "-" if ms is None else utc_text(ms)
