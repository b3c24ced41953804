"""Line charts of the benchmarks as pictures."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import lakehouse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour-blind people can distinguish these colours, too. Source: Okabe and Ito's palette.
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
_INK, _GRID = "#404040", "#d8d8d8"
_TICKS = "#808080"  # readable on a light and on a dark page
# A PNG is reduced to this many colours, which take a quarter of the bytes.
_PNG_COLOURS = 32
# matplotlib's font cache is next to the package, because the user's home may be read-only.
_FONT_CACHE = Path(lakehouse.__file__).resolve().parents[1] / ".lakehouse" / "matplotlib"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named line; its (x, y) points go from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


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


def _canvas(width: float, height: float, *, facecolor: str = "none") -> "tuple[Figure, Axes]":
    """An empty figure of this size in inches, without a frame."""
    os.environ.setdefault("MPLCONFIGDIR", str(_FONT_CACHE))
    # Silences messages about the font cache.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor=facecolor)
    axes = figure.add_subplot(frameon=False)
    axes.tick_params(length=0, labelsize=8, labelcolor=_TICKS)
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
