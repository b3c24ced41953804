"""Pictures for Dagster's page: a few hundred bytes of SVG each, drawn without a plotting library."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

from lakehouse.core.text import printable
from lakehouse.defs.metadata.markdown import Markdown, markdown_text
from lakehouse.report.chart import COLOURS

_BAR_WIDTH, _GAP, _HEIGHT, _LABEL_HEIGHT = 44, 6, 90, 30
# Read on the page's light and on its dark background.
_BAR_COLOUR, _SMALL_COLOUR, _TEXT_COLOUR = "#4f7cd6", "#e0913a", "#808080"

_ROW, _NAME_WIDTH, _ROW_WIDTH, _NUMBER_WIDTH = 20, 190, 420, 90


def histogram_picture(bars: Sequence[tuple[str, int, bool]]) -> Markdown:
    """Markdown that shows one bar per label, its count above it; a bar marked true has the colour of what is small."""
    tallest = max([count for _, count, _ in bars], default=0) or 1
    drawn = "".join(_bar(place, bar, tallest) for place, bar in enumerate(bars))
    width, height = len(bars) * (_BAR_WIDTH + _GAP) + _GAP, _HEIGHT + _LABEL_HEIGHT
    words = ", ".join(f"{label}: {count}" for label, count, _ in bars)
    return _image(f"file sizes: {words}", drawn, width, height)


def stacked_picture(title: str, kinds: Sequence[str], rows: Sequence[tuple[str, Mapping[str, int], str]]) -> Markdown:
    """Markdown that shows one line per row: its name, its numbers by kind end to end, as wide as their sum, and what to write behind.

    The kinds have a colour each, and are named above.
    """
    colours = {kind: COLOURS[place % len(COLOURS)] for place, kind in enumerate(kinds)}
    widest = max([sum(numbers.values()) for _, numbers, _ in rows], default=0) or 1
    drawn = [_legend(colours)]
    for place, (name, numbers, text) in enumerate(rows, start=1):
        left, top = float(_NAME_WIDTH), place * _ROW + 10
        label = escape(printable(name)[-30:])
        drawn.append(f'<text x="{_NAME_WIDTH - 6}" y="{top + 12}" text-anchor="end" fill="{_TEXT_COLOUR}">{label}</text>')
        for kind in kinds:
            width = numbers.get(kind, 0) / widest * _ROW_WIDTH
            drawn.append(f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_ROW - 5}" fill="{colours[kind]}"/>')
            left += width
        drawn.append(f'<text x="{left + 5:.1f}" y="{top + 12}" fill="{_TEXT_COLOUR}">{escape(text)}</text>')
    words = ", ".join(f"{name}: {text}" for name, _, text in rows)
    return _image(f"{title}: {words}", "".join(drawn), _NAME_WIDTH + _ROW_WIDTH + _NUMBER_WIDTH, (len(rows) + 1) * _ROW + 14)


def _legend(colours: Mapping[str, str]) -> str:
    drawn, left = "", 6
    for kind, colour in colours.items():
        drawn += f'<rect x="{left}" y="6" width="10" height="10" fill="{colour}"/>'
        drawn += f'<text x="{left + 14}" y="15" fill="{_TEXT_COLOUR}">{escape(kind)}</text>'
        left += 30 + 6 * len(kind)
    return drawn


def _image(words: str, drawn: str, width: int, height: int) -> Markdown:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="10">{drawn}</svg>'
    return Markdown(f"![{markdown_text(words)}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})")


def _bar(place: int, bar: tuple[str, int, bool], tallest: int) -> str:
    label, count, is_small = bar
    left = _GAP + place * (_BAR_WIDTH + _GAP)
    height = round(count / tallest * (_HEIGHT - 16))
    middle = left + _BAR_WIDTH // 2
    text = f'text-anchor="middle" fill="{_TEXT_COLOUR}"'
    fill = _SMALL_COLOUR if is_small else _BAR_COLOUR
    return (
        f'<rect x="{left}" y="{_HEIGHT - height}" width="{_BAR_WIDTH}" height="{height}" fill="{fill}"/>'
        f'<text x="{middle}" y="{_HEIGHT - height - 4}" {text}>{count}</text>'
        f'<text x="{middle}" y="{_HEIGHT + 14}" {text}>{escape(label)}</text>'
    )
