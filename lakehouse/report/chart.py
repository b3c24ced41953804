"""Line and bar charts as pictures, line charts as text, and small SVG charts for a page.

matplotlib is imported when the first picture is drawn, so that commands and sensors start fast.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import lakehouse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour-blind people can distinguish these colours, too. Source: Okabe and Ito's palette.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
_INK, _GRID = "#404040", "#d8d8d8"
# Readable on a light and on a dark page.
_BAR, _SMALL_BAR, _PAGE_INK = "#4f7cd6", "#e0913a", "#808080"
# A PNG is reduced to this many colours, so that it takes a quarter of the bytes in Dagster's
# database.
_PNG_COLOURS = 32
# The characters of the series in a text chart, which therefore shows at most four series.
_SIGNS = "*o+x"
# matplotlib's font cache is next to the package, because the user's home may be read-only.
_FONT_CACHE = Path(lakehouse.__file__).resolve().parents[1] / ".lakehouse" / "matplotlib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named line; its (x, y) points go from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """A bar of a histogram of file sizes. Bars of small files have their own colour."""

    label: str
    count: int
    is_small: bool


class StackedBar(NamedTuple):
    """A bar of several parts: its name, the number of each kind, and a text after the bar."""

    name: str
    numbers: Mapping[str, int]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The texts of a chart: its title and its axis labels."""

    title: str
    x: str
    y: str


def line_chart(
    labels: Labels,
    series: Sequence[Series],
    marks: Sequence[float] = (),
    *,
    file_format: Literal["png", "svg"],
) -> bytes:
    """Draws one line per series, from 0 upwards, and a tick on the x axis at each of `marks`."""
    figure, axes = _canvas(9.6, 4.2, facecolor="white")
    for index, each in enumerate(series):
        # Earlier lines are wider, so that they stay visible behind the later lines.
        width = 1.5 + min(1.5, 4.5 / len(series)) * (len(series) - 1 - index)
        xs = [x for x, _ in each.points]
        ys = [y for _, y in each.points]
        axes.plot(
            xs,
            ys,
            color=_COLOURS[index % len(_COLOURS)],
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
    axes.set_title(_literal(labels.title), loc="left", pad=24, color=_INK)
    axes.set_xlabel(labels.x, color=_INK)
    axes.set_ylabel(labels.y, color=_INK)
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


def bar_chart(bars: Sequence[Bar]) -> bytes:
    """A small PNG with one vertical bar per `Bar`, labelled with its count."""
    figure, axes = _canvas(max(1.0, 0.55 * len(bars)), 1.2)
    colours = [_SMALL_BAR if bar.is_small else _BAR for bar in bars]
    drawn = axes.bar(range(len(bars)), [bar.count for bar in bars], color=colours)
    axes.bar_label(drawn, color=_PAGE_INK, fontsize=8)
    axes.set_xticks(range(len(bars)), [_literal(bar.label) for bar in bars])
    axes.set_yticks([])
    return _file_of(figure, "png")


def stacked_bar_chart(kinds: Sequence[str], bars: Sequence[StackedBar]) -> bytes:
    """A small PNG with one horizontal bar per `StackedBar`, which has a part for each kind."""
    figure, axes = _canvas(7.0, 0.5 + 0.22 * len(bars))
    rows = range(len(bars))
    ends = [0] * len(bars)
    for index, kind in enumerate(kinds):
        widths = [bar.numbers.get(kind, 0) for bar in bars]
        drawn = axes.barh(
            rows, widths, left=ends, color=_COLOURS[index % len(_COLOURS)], label=_literal(kind)
        )
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
        if index == len(kinds) - 1:
            axes.bar_label(
                drawn,
                [_literal(bar.text) for bar in bars],
                padding=3,
                color=_PAGE_INK,
                fontsize=8,
            )
    axes.set_yticks(rows, [_literal(bar.name[-30:]) for bar in bars])
    axes.set_xticks([])
    axes.set_xmargin(0.15)
    axes.invert_yaxis()
    if bars:
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
    """An empty figure of this size in inches, without a frame."""
    os.environ.setdefault("MPLCONFIGDIR", str(_FONT_CACHE))
    # Silences messages about the font cache.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=facecolor)
    axes = figure.add_subplot(frameon=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=_PAGE_INK)
    return figure, axes


def _literal(text: str) -> str:
    """Escapes dollar signs, between which matplotlib expects a formula."""
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
        warnings.simplefilter("ignore")  # characters that the font lacks
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
    """Draws up to four series as text, each with its own character; empty if there are no points.

    Each column shows the mean of its points. A `^` below the x axis shows each x value in `marks`.
    `marked` is the name of the marks in the legend.
    """
    points = [point for each in series for point in each.points]
    if not points:
        return []
    low = min(x for x, _ in points)
    high = max(x for x, _ in points)
    most = max(1.0, *(y for _, y in points))
    width = min(width, max(len(each.points) for each in series))
    cells = [[" "] * width for _ in range(height)]

    def column(x: float) -> int:
        return min(width - 1, int((x - low) / (high - low) * width) if high > low else 0)

    # The first series is drawn last, over the others.
    for each, sign in reversed(list(zip(series, _SIGNS, strict=False))):
        columns: list[list[float]] = [[] for _ in range(width)]
        for x, y in each.points:
            columns[column(x)].append(y)
        for index, values in enumerate(columns):
            if values:
                mean = sum(values) / len(values)
                level = min(height - 1, round(mean / most * (height - 1)))
                cells[height - 1 - level][index] = sign
    margin = len(f"{most:,.0f}")
    heads = [f"{most:,.0f}", *[""] * (height - 2), "0"]
    rows = [
        f"{head:>{margin}} |{''.join(row).rstrip()}" for head, row in zip(heads, cells, strict=True)
    ]
    rows.append(f"{'':>{margin}} +{'-' * width}")
    marked_columns = {column(mark) for mark in marks}
    if marked_columns:
        ticks = "".join("^" if index in marked_columns else " " for index in range(width))
        rows.append(f"{'':>{margin}}  {ticks.rstrip()}")
    low_text = f"{low:,.10g}"
    high_text = f"{high:,.10g}"
    high_width = max(len(high_text) + 1, width - len(low_text))
    rows.append(f"{'':>{margin}}  {low_text}{high_text:>{high_width}}")
    legend = [f"{sign} {each.name}" for each, sign in zip(series, _SIGNS, strict=False)]
    if marked_columns:
        legend.append(f"^ {marked}")
    rows.append(f"{'':>{margin}}  {'   '.join(legend)}")
    return rows


def sparkline(points: Sequence[tuple[float, float]], *, width: int = 120, height: int = 24) -> str:
    """A small line chart from 0 upwards as SVG text; empty if there are fewer than two points.

    The page's style sheet sets the colour of the line, to suit a light and a dark page.
    """
    if len(points) < 2:
        return ""
    low = points[0][0]
    high = points[-1][0]
    most = max(1.0, *(y for _, y in points))
    span = max(1.0, high - low)
    coordinates = " ".join(
        f"{(x - low) / span * (width - 4) + 2:.1f},{height - 2 - y / most * (height - 4):.1f}"
        for x, y in points
    )
    end_x, _, end_y = coordinates.rpartition(" ")[2].partition(",")
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>from {points[0][1]:,.0f} to {points[-1][1]:,.0f}, '
        f'at most {most:,.0f}</title><polyline points="{coordinates}"/>'
        f'<circle cx="{end_x}" cy="{end_y}" r="2"/></svg>'
    )


def share_bar(numbers: Sequence[float], *, width: int = 600, height: int = 14) -> str:
    """One bar as SVG text, with a part for each number. Part n, from 0, has the class `part-n`."""
    total = sum(numbers)
    parts = list[str]()
    start = 0.0
    for index, number in enumerate(numbers):
        length = number / total * width if total else 0.0
        parts.append(
            f'<rect class="part-{index}" x="{start:.2f}" width="{length:.2f}" height="{height}"/>'
        )
        start += length
    return (
        f'<svg class="bar" viewBox="0 0 {width} {height}" preserveAspectRatio="none" '
        f'role="presentation">{"".join(parts)}</svg>'
    )
