"""Renders the morning page of `lakehouse report` as one HTML file, without scripts or other files.

**Safety properties** (`report/test_render_page.py`)
- Every text is escaped: a table named `<script>` shows as text.
- Control characters and direction marks are shown escaped, as in the terminal.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.report.attention import Concern
from lakehouse.core.report.page_contents import Page
from lakehouse.core.text import count_of, printable, size_text, utc_text
from lakehouse.core.units import MINUTE_MS
from lakehouse.report.chart import share_bar, sparkline

_UNKNOWN = Markup('<span class="unknown">unknown</span>')
# The template shows these concerns in a less alarming colour.
_MILD = frozenset({Concern.PAUSED, Concern.UNDECLARED, Concern.INVENTORY_LATE, Concern.QUARANTINE})
# The page shows at most this many operations, so that it stays small for a lake of 1,000 tables.
_MOST_RUNS = 200
# Ages are shown in hours from two hours on, and in days from two days on.
_HOURS_FROM_MINUTES = 120
_DAYS_FROM_MINUTES = 2 * 24 * 60
# A score below `_BAD` is shown as bad, and a score below `_FAIR` as fair.
_BAD = 50
_FAIR = 75


def render_page(page: Page) -> str:
    """The page as an HTML document."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "size": lambda count: _or_unknown(count, size_text),
        "count": lambda count: _or_unknown(count, "{:,}".format),
        "usd": lambda usd: _or_unknown(usd, usd_text),
        "time": lambda ms: _or_unknown(ms, utc_text),
        "noun": count_of,
        "share": lambda share: _or_unknown(share, "{:.0%}".format),
        "day": lambda ms: utc_text(ms)[:10],
        "ago": lambda ms: _ago(ms, page.created_ms),
        "name": _name,
        "mood": _mood,
        "spark": lambda points: Markup(sparkline(points)),  # noqa: S704  # holds numbers only
        "bar": _bar,
        "wrong_cells": _wrong_cells,
        "capitalize_first": lambda text: text[:1].upper() + text[1:],
        "duration": _duration,
        "growth": lambda grown: f"{'-' if grown < 0 else '+'}{size_text(abs(grown))}",
        "words": lambda name: name.replace("_", " ").lower(),
    }
    template = environment.get_template("page.html.j2")
    return template.render(page=page, mild=_MILD, most_runs=_MOST_RUNS)


def usd_text(usd: float) -> str:
    """`12.34 USD`; below 1 USD, up to three significant digits and seven decimals, `0.0012 USD`."""
    # Amounts from 0.995 on round to 1.00 or more.
    if usd == 0 or abs(usd) >= 0.995:
        return f"{usd:,.2f} USD"
    if abs(usd) < 0.000001:
        return "under 0.000001 USD"
    # Below 0.0001, the format `g` has an exponent.
    if abs(usd) < 0.0001:
        return f"{usd:.7f} USD"
    return f"{usd:.3g} USD"


def _shown(value: Any) -> Any:
    """Escapes control characters and direction marks in a text. Jinja escapes HTML afterwards."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _or_unknown(value: Any, to_text: Any) -> str:
    """`to_text(value)`, or `unknown` without a value."""
    return _UNKNOWN if value is None else to_text(value)


def _ago(ms: int | None, now_ms: int) -> str:
    """`3 h ago`, with the time itself as a tooltip; `none known` if `ms` is `None`."""
    if ms is None:
        return Markup('<span class="unknown">none known</span>')
    minutes = max(0, now_ms - ms) // MINUTE_MS
    text = f"{minutes} min"
    if minutes >= _DAYS_FROM_MINUTES:
        text = f"{minutes // (24 * 60)} d"
    elif minutes >= _HOURS_FROM_MINUTES:
        text = f"{minutes // 60} h"
    return Markup('<span title="{}">{} ago</span>').format(utc_text(ms), text)


def _wrong_cells(run: UpkeepOperation) -> list[tuple[str, str, str, str]]:
    """The figures whose predicted and actual texts differ."""
    cells = [figure.cells for figure in run.wrong_figures]
    return [each for each in cells if each[1] != each[2]]


def _duration(seconds: float) -> str:
    """`8.2 s`, `12 min` or `3.4 h`."""
    if seconds < 2 * 60:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 2 * 60 else f"{minutes / 60:.1f} h"


def _name(key: str) -> Markup:
    """A table's key, with a possible line break (`<wbr>`) after each slash and underscore."""
    text = str(escape(printable(key)))
    return Markup(text.replace("/", "/<wbr>").replace("_", "_<wbr>"))  # noqa: S704  # escaped


def _mood(score: float | None) -> str:
    """The CSS class of a score's colour."""
    if score is None:
        return "none"
    if score < _BAD:
        return "bad"
    return "fair" if score < _FAIR else "good"


def _bar(numbers: Mapping[str, float] | Sequence[float] | Iterable[float]) -> Markup:
    values = numbers.values() if isinstance(numbers, Mapping) else numbers
    return Markup(share_bar([*values]))  # noqa: S704  # holds numbers only
