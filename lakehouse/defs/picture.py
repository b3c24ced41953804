"""A size histogram as a picture for Dagster's page: a few hundred bytes of SVG, drawn without a plotting library."""

import base64
from collections.abc import Sequence
from html import escape

_BAR_WIDTH, _GAP, _HEIGHT, _LABEL_HEIGHT = 44, 6, 90, 30
# Read on the page's light and on its dark background.
_BAR_COLOUR, _SMALL_COLOUR, _TEXT_COLOUR = "#4f7cd6", "#e0913a", "#808080"


def histogram_picture(bars: Sequence[tuple[str, int, bool]]) -> str:
    """Markdown that shows one bar per label, its count above it; a bar marked true has the colour of what is small."""
    tallest = max([count for _, count, _ in bars], default=0) or 1
    drawn = "".join(_bar(place, bar, tallest) for place, bar in enumerate(bars))
    width, height = len(bars) * (_BAR_WIDTH + _GAP) + _GAP, _HEIGHT + _LABEL_HEIGHT
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="10">{drawn}</svg>'
    words = ", ".join(f"{label}: {count}" for label, count, _ in bars)
    return f"![file sizes: {escape(words)}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


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
