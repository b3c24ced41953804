"""Markdown for Dagster's pages. Text from outside is escaped here, and only here.

Pictures are PNGs of one or two KiB, embedded in the text.
"""

import base64
import re
from collections.abc import Callable, Sequence
from typing import NewType

import dagster as dg

from lakehouse.core.text import printable
from lakehouse.report.chart import Bar, StackedBar, bar_chart, stacked_bar_chart
from lakehouse.runtime.extras import is_installed

# Text that is already Markdown; `markdown_text` converts any other text.
Markdown = NewType("Markdown", str)

# Characters that begin inline markup: code, emphasis, links, images, tags, entities, cells and
# escapes. Source: CommonMark 0.31, "Backslash escapes" and "Inlines"; GitHub Flavored Markdown,
# "Tables" and "Strikethrough".
_MARKUP = re.compile(r"[\\`*_\[\]<>&|~]")


def markdown_text(text: str) -> Markdown:
    """Markdown that shows exactly this text within a line."""
    return Markdown(_MARKUP.sub(r"\\\g<0>", printable(text)))


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markdown:
    """A table whose cells show exactly these texts."""
    return markdown_cells(heads, [[*map(markdown_text, row)] for row in rows])


def markdown_cells(heads: Sequence[str], rows: Sequence[Sequence[Markdown]]) -> Markdown:
    """A table whose cells are Markdown."""
    lines = [[*map(markdown_text, heads)], ["---"] * len(heads), *rows]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def markdown_link(text: str, address: str) -> Markdown:
    """A link with this text. The caller has already encoded `address` for a URL."""
    return Markdown(f"[{markdown_text(text)}]({address})")


def markdown_value(*parts: Markdown) -> dg.MarkdownMetadataValue:
    """The parts, a paragraph each, as metadata."""
    return dg.MetadataValue.md("\n\n".join(parts))


def histogram_picture(bars: Sequence[Bar]) -> Markdown:
    """A picture of file sizes, with one labelled bar per range of sizes."""
    description = "file sizes: " + ", ".join(f"{bar.label}: {bar.count}" for bar in bars)
    return _picture(description, lambda: bar_chart(bars))


def stacked_picture(title: str, kinds: Sequence[str], bars: Sequence[StackedBar]) -> Markdown:
    """A picture of stacked bars, each with its name. A legend names the colour of each kind."""
    numbers = ", ".join(f"{bar.name}: {bar.text}" for bar in bars)
    drawn = [bar._replace(name=printable(bar.name)) for bar in bars]
    return _picture(f"{title}: {numbers}", lambda: stacked_bar_chart(kinds, drawn))


def _picture(description: str, draw: Callable[[], bytes]) -> Markdown:
    """The picture, or only its description if the extra `charts` is not installed."""
    if not is_installed("matplotlib"):
        return markdown_text(description)
    png = base64.b64encode(draw()).decode()
    return Markdown(f"![{markdown_text(description)}](data:image/png;base64,{png})")
