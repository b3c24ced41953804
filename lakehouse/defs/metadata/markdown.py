"""Markdown for Dagster's page: the one place where a text from outside gets into it, and shows itself and nothing else."""

import re
from collections.abc import Sequence
from typing import NewType

import dagster as dg

from lakehouse.core.text import printable

# Text that is Markdown already; whatever is not is made so by `markdown_text`.
Markdown = NewType("Markdown", str)

# What can begin something within a line: code, emphasis, a link, an image, a tag, an entity, a cell's end, an escape.
# Source: CommonMark 0.31, "Backslash escapes" and "Inlines"; GitHub Flavored Markdown, "Tables" and "Strikethrough".
_ACTING = re.compile(r"[\\`*_\[\]<>&|~]")


def markdown_text(text: str) -> Markdown:
    """Markdown that shows exactly this text, within a line: a cell of a table, the words of a picture."""
    return Markdown(_ACTING.sub(r"\\\g<0>", printable(text)))


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markdown:
    """A table whose cells show exactly these texts."""
    lines = [[*map(markdown_text, heads)], ["---"] * len(heads), *([*map(markdown_text, row)] for row in rows)]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def markdown_value(*parts: Markdown) -> dg.MarkdownMetadataValue:
    """The parts, a paragraph each, as metadata."""
    return dg.MetadataValue.md("\n\n".join(parts))
