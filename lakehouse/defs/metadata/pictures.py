"""Pictures for Dagster's page: a PNG of one or two KiB each, within the text."""

import base64
from collections.abc import Mapping, Sequence

from lakehouse.core.text import printable
from lakehouse.defs.metadata.markdown import Markdown, markdown_text
from lakehouse.report.chart import bar_chart, stacked_bar_chart


def histogram_picture(bars: Sequence[tuple[str, int, bool]]) -> Markdown:
    """Markdown that shows one bar per label, its count above it; a bar marked true has the colour of what is small."""
    return _image("file sizes: " + ", ".join(f"{label}: {count}" for label, count, _ in bars), bar_chart(bars))


def stacked_picture(title: str, kinds: Sequence[str], rows: Sequence[tuple[str, Mapping[str, int], str]]) -> Markdown:
    """Markdown that shows one line per row: its name, its numbers by kind end to end, and what to write behind.

    The kinds have a colour each, and are named above.
    """
    words = ", ".join(f"{name}: {text}" for name, _, text in rows)
    drawn = stacked_bar_chart(kinds, [(printable(name), numbers, text) for name, numbers, text in rows])
    return _image(f"{title}: {words}", drawn)


def _image(words: str, png: bytes) -> Markdown:
    return Markdown(f"![{markdown_text(words)}](data:image/png;base64,{base64.b64encode(png).decode()})")
