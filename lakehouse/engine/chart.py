"""Figures over versions or time as a chart, in text for a terminal and as SVG for everything else; no plotting library is loaded."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 860, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 46, 44
# Read on a light and on a dark background; told apart also without red and green.
_COLOURS = ("#4f7cd6", "#e0913a", "#8a5cc2", "#2a9d8f", "#c2557a", "#808080")
_TEXT_COLOUR, _GRID_COLOUR = "#808080", "#80808040"
_SIGNS = "*o+x#%"
_TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named figure at rising places; between two places it keeps the value of the first."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Series from zero up over one axis, and places on that axis that are marked, `marked` saying what they are."""

    title: str
    x_name: str
    y_name: str
    series: Sequence[Series]
    marks: Sequence[float] = ()
    marked: str = ""

    def as_text(self, *, width: int = 100, height: int = 12) -> str:
        """The chart in so many columns and rows of plain signs, a line of marks and a legend below it."""
        low, high, top = self._extent()
        middle = (height - 1) // 2
        labels = {0: _short(top), middle: _short(top * (1 - middle / (height - 1))), height - 1: "0"}
        label_width = max(map(len, labels.values()))
        columns = max(width - label_width - 2, 10)
        rows = [[" "] * columns for _ in range(height)]
        for place, series in enumerate(self.series):
            for column, least, most in _columns(series.points, low, high, columns):
                for row in range(round(least / top * (height - 1)), round(most / top * (height - 1)) + 1):
                    rows[height - 1 - row][column] = _SIGNS[place % len(_SIGNS)]
        lines = [f"{labels.get(number, ''):>{label_width}} |{''.join(row).rstrip()}" for number, row in enumerate(rows)]
        return "\n".join([self.title, *lines, *self._text_below(low, high, label_width, columns)])

    def as_svg(self) -> str:
        """The chart as one SVG document."""
        low, high, top = self._extent()
        parts = [*self._svg_grid(low, high, top), *self._svg_marks(low, high)]
        for place, series in enumerate(self.series):
            colour = _COLOURS[place % len(_COLOURS)]
            corners = [(_x(x, low, high), _y(y, top)) for x, y in series.points]
            steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in corners[1:])
            if corners:
                start = f"M{corners[0][0]:.1f} {corners[0][1]:.1f}"
                parts.append(f'<path d="{start}{steps}H{_x(high, low, high):.1f}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
            parts.append(_svg_text(_LEFT + 150 * place, _TOP - 10, f"■ {series.name}", colour))
        parts.append(_svg_text(_LEFT, 18, self.title, _TEXT_COLOUR, size=14))
        size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">{"".join(parts)}</svg>\n'

    def _extent(self) -> tuple[float, float, float]:
        """The first and last place, and the largest value; never the same twice, so that nothing is divided by zero."""
        points = [point for series in self.series for point in series.points] or [(0.0, 0.0)]
        low, high = min(x for x, _ in points), max(x for x, _ in points)
        return low, high if high > low else low + 1, max(y for _, y in points) or 1

    def _text_below(self, low: float, high: float, label_width: int, columns: int) -> Iterator[str]:
        indent = " " * (label_width + 1)
        yield f"{indent}+{'-' * columns}"
        if self.marks:
            signs = [" "] * columns
            for mark in self.marks:
                signs[_column(mark, low, high, columns)] = "^"
            yield f"{indent} {''.join(signs).rstrip()}"
        first, last = f"{self.x_name} {_short(low)}", _short(high)
        yield f"{indent} {first}{last:>{max(columns - len(first), len(last) + 1)}}"
        legend = [f"{_SIGNS[place % len(_SIGNS)]} {series.name}" for place, series in enumerate(self.series)]
        yield f"{indent} {'   '.join([*legend, *([f'^ {self.marked}'] if self.marks else [])])}"

    def _svg_grid(self, low: float, high: float, top: float) -> Iterator[str]:
        for tick in range(_TICKS + 1):
            share = tick / _TICKS
            y, x = _y(top * share, top), _x(low + (high - low) * share, low, high)
            yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID_COLOUR}"/>'
            yield _svg_text(_LEFT - 6, y + 4, _short(top * share), _TEXT_COLOUR, anchor="end")
            yield _svg_text(x, _HEIGHT - _BOTTOM + 16, _short(low + (high - low) * share), _TEXT_COLOUR, anchor="middle")
        yield _svg_text(_WIDTH - _RIGHT, _HEIGHT - 10, self.x_name, _TEXT_COLOUR, anchor="end")
        yield _svg_text(6, _TOP - 10, self.y_name, _TEXT_COLOUR)

    def _svg_marks(self, low: float, high: float) -> Iterator[str]:
        bottom = _HEIGHT - _BOTTOM
        for mark in self.marks:
            x = _x(mark, low, high)
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}" stroke="{_COLOURS[1]}" stroke-opacity="0.35"/>'
        if self.marks:
            yield _svg_text(_LEFT, _HEIGHT - 10, f"| {self.marked} ({len(self.marks)})", _COLOURS[1])


def _columns(points: Sequence[tuple[float, float]], low: float, high: float, columns: int) -> Iterator[tuple[int, float, float]]:
    """Each column that the series touches, with the least and the most it is there."""
    ends = [*points[1:], (high, points[-1][1])] if points else []
    ranges: dict[int, tuple[float, float]] = {}
    for (x, y), (next_x, _) in zip(points, ends, strict=True):
        for column in range(_column(x, low, high, columns), _column(next_x, low, high, columns) + 1):
            least, most = ranges.get(column, (y, y))
            ranges[column] = (min(least, y), max(most, y))
    for column, (least, most) in ranges.items():
        yield column, least, most


def _column(x: float, low: float, high: float, columns: int) -> int:
    return min(max(round((x - low) / (high - low) * (columns - 1)), 0), columns - 1)


def _x(x: float, low: float, high: float) -> float:
    return _LEFT + (x - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)


def _y(y: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM)


def _svg_text(x: float, y: float, text: str, colour: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _short(value: float) -> str:
    """`1.2M`: a number in as few signs as a chart has room for."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit * 10:
            return f"{value / unit:.4g}{name}"
    return f"{value:.4g}"
