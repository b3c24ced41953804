"""Charts: lines and bars as a picture, and lines in letters for a terminal.

matplotlib draws the pictures. It is imported when the first one is drawn: the terminal and the sensors start without it.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import lakehouse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# People who see no red and green tell these apart, too. Source: Okabe and Ito's palette.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
_INK, _GRID = "#404040", "#d8d8d8"
# These can be read on the page's light and on its dark background.
_BAR, _SMALL_BAR, _PAGE_INK = "#4f7cd6", "#e0913a", "#808080"
_PNG_COLOURS = 32  # a palette makes a picture of bars a quarter as large: the page's pictures lie in Dagster's database
_SIGNS = "*o+x"  # of a chart in letters
# Beside the jars, where the checkout keeps its other caches: a home that cannot be written to is no reason to draw nothing.
_FONT_CACHE = Path(lakehouse.__file__).resolve().parents[1] / ".lakehouse" / "matplotlib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line with its name, from left to right; a point is an x and a y, both of any size."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(
    title: str,
    series: Sequence[Series],
    marks: Sequence[float] = (),
    *,
    x_name: str,
    y_name: str,
    file_format: Literal["png", "svg"],
) -> bytes:
    """The picture's file: one line per series, from 0 upwards, and a tick on the x axis at every x of `marks`."""
    figure, axes = _canvas(9.6, 4.2, facecolor="white")
    for place, each in enumerate(series):
        # The lines behind are wider, so that a line that falls together with another is still seen.
        width = 1.5 + min(1.5, 4.5 / len(series)) * (len(series) - 1 - place)
        xs, ys = [x for x, _ in each.points], [y for _, y in each.points]
        axes.plot(
            xs,
            ys,
            color=_COLOURS[place % len(_COLOURS)],
            linewidth=width,
            label=_literal(each.name),
        )
    axes.plot(
        marks,
        [0] * len(marks),
        "|",
        color=_INK,
        markersize=10,
        clip_on=False,
        transform=axes.get_xaxis_transform(),
    )
    axes.set_title(_literal(title), loc="left", pad=24, color=_INK)
    axes.set_xlabel(x_name, color=_INK)
    axes.set_ylabel(y_name, color=_INK)
    axes.set_ylim(bottom=0)
    axes.locator_params(integer=True)
    axes.ticklabel_format(style="plain", useOffset=False)
    axes.grid(axis="y", color=_GRID)
    axes.tick_params(colors=_INK)
    axes.tick_params(axis="x", pad=8)
    if series:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(series),
            frameon=False,
            labelcolor=_INK,
        )
    return _file_of(figure, file_format, dots_per_inch=200)


def bar_chart(bars: Sequence[tuple[str, int, bool]]) -> bytes:
    """A small PNG with one bar per label, its count above it; a bar marked true has the colour of what is small."""
    figure, axes = _canvas(max(1.0, 0.55 * len(bars)), 1.2)
    colours = [_SMALL_BAR if is_small else _BAR for _, _, is_small in bars]
    drawn = axes.bar(range(len(bars)), [count for _, count, _ in bars], color=colours)
    axes.bar_label(drawn, color=_PAGE_INK, fontsize=8)
    axes.set_xticks(range(len(bars)), [_literal(label) for label, _, _ in bars])
    axes.set_yticks([])
    return _file_of(figure, "png")


def stacked_bar_chart(
    kinds: Sequence[str], rows: Sequence[tuple[str, Mapping[str, int], str]]
) -> bytes:
    """A small PNG with one line per row: its name, its numbers by kind end to end, and a text behind them; the kinds are named above."""
    figure, axes = _canvas(7.0, 0.5 + 0.22 * len(rows))
    places, ends = range(len(rows)), [0] * len(rows)
    for place, kind in enumerate(kinds):
        widths = [numbers.get(kind, 0) for _, numbers, _ in rows]
        drawn = axes.barh(
            places, widths, left=ends, color=_COLOURS[place % len(_COLOURS)], label=_literal(kind)
        )
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
        if place == len(kinds) - 1:
            axes.bar_label(
                drawn,
                [_literal(text) for _, _, text in rows],
                padding=3,
                color=_PAGE_INK,
                fontsize=8,
            )
    axes.set_yticks(places, [_literal(name[-30:]) for name, _, _ in rows])
    axes.set_xticks([])
    axes.set_xmargin(0.15)
    axes.invert_yaxis()
    if rows:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=len(kinds),
            frameon=False,
            labelcolor=_PAGE_INK,
            fontsize=8,
        )
    return _file_of(figure, "png")


def _canvas(width: float, height: float, *, facecolor: str = "none") -> "tuple[Figure, Axes]":
    """An empty figure of so many inches, without a frame around its only axes."""
    os.environ.setdefault("MPLCONFIGDIR", str(_FONT_CACHE))
    logging.getLogger("matplotlib").setLevel(
        logging.ERROR
    )  # a font cache that is built, or cannot be kept, concerns nobody
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=facecolor)
    axes = figure.add_subplot(frameon=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=_PAGE_INK)
    return figure, axes


def _literal(text: str) -> str:
    """The text for matplotlib to show as it is: between two dollar signs it would read a formula."""
    return text.replace("$", r"\$")


def _file_of(
    figure: "Figure", file_format: Literal["png", "svg"], *, dots_per_inch: int = 100
) -> bytes:
    import warnings

    from matplotlib import rc_context
    from PIL import Image

    with (
        BytesIO() as drawn,
        BytesIO() as packed,
        warnings.catch_warnings(),
        rc_context({"svg.fonttype": "none"}),
    ):
        warnings.simplefilter("ignore")  # a sign that the font does not have is shown as a box
        figure.savefig(drawn, format=file_format, dpi=dots_per_inch)
        if file_format == "svg":
            return drawn.getvalue()
        Image.open(drawn).quantize(_PNG_COLOURS).save(packed, "PNG", optimize=True)
        return packed.getvalue()


def text_chart(
    series: Sequence[Series],
    marks: Iterable[float] = (),
    *,
    marked: str = "",
    width: int = 72,
    height: int = 12,
) -> list[str]:
    """The same lines in letters, one sign per series, those named first on top; a column shows the mean of what falls into it.

    Below it is a `^` at every x of `marks`, and `marked` says what they are.
    """
    points = [point for each in series for point in each.points]
    if not points:
        return []
    low, high = min(x for x, _ in points), max(x for x, _ in points)
    most = max(1.0, *(y for _, y in points))
    width = min(width, max(len(each.points) for each in series))
    cells = [[" "] * width for _ in range(height)]

    def column(x: float) -> int:
        return min(width - 1, int((x - low) / (high - low) * width) if high > low else 0)

    for each, sign in reversed(list(zip(series, _SIGNS, strict=False))):
        columns: list[list[float]] = [[] for _ in range(width)]
        for x, y in each.points:
            columns[column(x)].append(y)
        for place, values in enumerate(columns):
            if values:
                level = min(height - 1, round(sum(values) / len(values) / most * (height - 1)))
                cells[height - 1 - level][place] = sign
    margin = len(f"{most:,.0f}")
    heads = [f"{most:,.0f}", *[""] * (height - 2), "0"]
    rows = [
        f"{head:>{margin}} |{''.join(row).rstrip()}" for head, row in zip(heads, cells, strict=True)
    ]
    feet = f"{low:,.10g}", f"{high:,.10g}"
    rows.append(f"{'':>{margin}} +{'-' * width}")
    places = {column(mark) for mark in marks}
    if places:
        rows.append(
            f"{'':>{margin}}  {''.join('^' if place in places else ' ' for place in range(width)).rstrip()}"
        )
    rows.append(
        f"{'':>{margin}}  {feet[0]}{feet[1]:>{max(len(feet[1]) + 1, width - len(feet[0]))}}"
    )
    legend = [f"{sign} {each.name}" for each, sign in zip(series, _SIGNS, strict=False)] + (
        [f"^ {marked}"] if places else []
    )
    rows.append(f"{'':>{margin}}  {'   '.join(legend)}")
    return rows
