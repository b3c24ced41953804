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
    cells = [[*map(markdown_text, row)] for row in (heads, *rows)]
    lines = [cells[0], ["---"] * len(heads), *cells[1:]]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def markdown_value(*parts: Markdown) -> dg.MarkdownMetadataValue:
    """The parts, a paragraph each, as metadata."""
    return dg.MetadataValue.md("\n\n".join(parts))
