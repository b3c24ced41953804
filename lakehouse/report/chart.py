"""A line chart as a list of shapes, as SVG, and in letters, without a plotting library; `png` draws the same shapes as pixels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

WIDTH, HEIGHT = 960, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 70, 50
# Told apart by those who see no red and green, too. Source: Okabe and Ito's palette.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
_INK, _GRID, _PAPER = "#404040", "#d8d8d8", "#ffffff"

type_of_point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line with its name, from left to right; a point is an x and a y, both of any size."""

    name: str
    points: Sequence[type_of_point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line through points of the picture."""

    points: tuple[type_of_point, ...]
    colour: str
    width: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A text whose baseline starts, has its middle or ends at a point, by `anchor`."""

    at: type_of_point
    text: str
    anchor: str = "start"
    large: bool = False


type_of_shape = Line | Words


def line_chart(title: str, series: Sequence[Series], marks: Iterable[float] = (), *, x_name: str = "", y_name: str = "") -> str:
    """The chart as SVG: one line per series, from 0 upwards, and a tick below it at every x of `marks`."""
    drawn = "".join(map(_svg, chart_shapes(title, series, marks, x_name=x_name, y_name=y_name)))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{_PAPER}"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{paper}{drawn}</svg>\n'


def chart_shapes(
    title: str, series: Sequence[Series], marks: Iterable[float] = (), *, x_name: str = "", y_name: str = ""
) -> Iterator[type_of_shape]:
    """What `line_chart` consists of, from the back to the front."""
    points = [point for each in series for point in each.points]
    low, high = min((x for x, _ in points), default=0), max((x for x, _ in points), default=1)
    step = tick_step(max((y for _, y in points), default=1))
    top = max(1, ceil(max((y for _, y in points), default=1) / step)) * step

    def at(x: float, y: float) -> type_of_point:
        across = (x - low) / (high - low) if high > low else 0.5
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - y / top * (HEIGHT - _TOP - _BOTTOM)

    yield Words(at=(_LEFT, 24), text=title, large=True)
    yield from _legend(series)
    for number in range(round(top / step) + 1):
        y = number * step
        yield Line(
            points=(at(low, y), at(high, y)) if high > low else ((_LEFT, at(low, y)[1]), (WIDTH - _RIGHT, at(low, y)[1])), colour=_GRID
        )
        yield Words(at=(_LEFT - 8, at(low, y)[1] + 4), text=f"{y:,.10g}", anchor="end")
    for mark in marks:
        x, y = at(mark, 0)
        yield Line(points=((x, y + 2), (x, y + 9)), colour=_INK)
    yield Words(at=(_LEFT, HEIGHT - 14), text=f"{low:,.10g}")
    yield Words(at=(WIDTH - _RIGHT, HEIGHT - 14), text=f"{high:,.10g}", anchor="end")
    yield Words(at=((WIDTH + _LEFT) / 2, HEIGHT - 14), text=x_name, anchor="middle")
    yield Words(at=(8, _TOP - 14), text=y_name)
    for place, (each, colour) in enumerate(zip(series, _colours(series), strict=True)):
        # Those behind are wider, so that a line that falls together with another is still seen.
        yield Line(points=tuple(at(x, y) for x, y in each.points), colour=colour, width=2 + 2 * min(2, len(series) - 1 - place))


def tick_step(most: float) -> float:
    """The distance of ticks, 1, 2 or 5 times a power of ten, of which about five reach `most`."""
    rough = max(most, 1e-9) / 5
    power = 10.0 ** int(log10(rough) // 1)
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def _legend(series: Sequence[Series]) -> Iterator[type_of_shape]:
    left = _LEFT
    for each, colour in zip(series, _colours(series), strict=True):
        yield Line(points=((left, 42), (left + 22, 42)), colour=colour, width=2)
        yield Words(at=(left + 28, 46), text=each.name)
        left += 28 + 8 * len(each.name) + 24


def _colours(series: Sequence[Series]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(series))]


def _svg(shape: type_of_shape) -> str:
    match shape:
        case Line(points=points, colour=colour, width=width):
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
        case Words(at=(x, y), text=text, anchor=anchor, large=large):
            size = 16 if large else 12
            return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{_INK}">{escape(text)}</text>'


def text_chart(
    series: Sequence[Series], marks: Iterable[float] = (), *, marked: str = "", width: int = 72, height: int = 12, signs: str = "*o+x"
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

    for each, sign in reversed(list(zip(series, signs, strict=False))):
        columns: list[list[float]] = [[] for _ in range(width)]
        for x, y in each.points:
            columns[column(x)].append(y)
        for place, values in enumerate(columns):
            if values:
                level = min(height - 1, round(sum(values) / len(values) / most * (height - 1)))
                cells[height - 1 - level][place] = sign
    margin = len(f"{most:,.0f}")
    heads = [f"{most:,.0f}", *[""] * (height - 2), "0"]
    rows = [f"{head:>{margin}} |{''.join(row).rstrip()}" for head, row in zip(heads, cells, strict=True)]
    feet = f"{low:,.10g}", f"{high:,.10g}"
    rows.append(f"{'':>{margin}} +{'-' * width}")
    places = {column(mark) for mark in marks}
    if places:
        rows.append(f"{'':>{margin}}  {''.join('^' if place in places else ' ' for place in range(width)).rstrip()}")
    rows.append(f"{'':>{margin}}  {feet[0]}{feet[1]:>{max(len(feet[1]) + 1, width - len(feet[0]))}}")
    legend = [f"{sign} {each.name}" for each, sign in zip(series, signs, strict=False)] + ([f"^ {marked}"] if places else [])
    rows.append(f"{'':>{margin}}  {'   '.join(legend)}")
    return rows
