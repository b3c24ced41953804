"""Markdown for Dagster's pages. Text from outside is escaped here, and only here."""

import re
from collections.abc import Sequence
from typing import NewType

import dagster as dg

from lakehouse.core.text import printable

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
