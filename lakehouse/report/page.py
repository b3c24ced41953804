"""Renders the report as one HTML file, without scripts or other files.

**Safety properties** (`report/test_page.py`)
- Every text is escaped: a table named `<script>` shows as text.
- Control characters and direction marks are shown escaped, as in the terminal.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lakehouse.base.text import MINUTE_MS, count_of, printable, size_text, usd_text, utc_text

_UNKNOWN = Markup('<span class="soft">–</span>')
# A score below `_BAD` is shown as bad, and a score below `_FAIR` as fair.
_BAD = 50
_FAIR = 75
# Ages are shown in hours from two hours on, and in days from two days on.
_HOURS_FROM_MINUTES = 2 * 60
_DAYS_FROM_MINUTES = 2 * 24 * 60
_WIDTH = 120
_HEIGHT = 24


def render_page(report: Mapping[str, Any]) -> str:
    """The HTML of a report (`report.run.read_report`)."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {
        "size": lambda count: _UNKNOWN if count is None else size_text(count),
        "count": lambda count: _UNKNOWN if count is None else f"{count:,}",
        "usd": lambda usd: _UNKNOWN if usd is None else usd_text(usd),
        "seconds": lambda seconds: _UNKNOWN if seconds is None else f"{seconds:.1f} s",
        "time": utc_text,
        "noun": count_of,
        "ago": lambda ms: _ago(ms, report["created_ms"]),
        "name": _name,
        "mood": _mood,
        "spark": _sparkline,
        "words": lambda name: name.replace("_", " ").lower(),
    }
    template = environment.get_template("page.html.j2")
    costs_of = {each["name"]: each["usd"] for each in report["costs"]["groups"]}
    return template.render(report=report, runs=_runs(report), costs_of=costs_of)


def _runs(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The listed compactions of all tables, the newest first."""
    runs = list[dict[str, Any]]()
    for history in report["history"]:
        for commit in history["commits"]:
            if run := commit["compaction"]:
                runs.append({"table": history["table"], **commit, **run})
    return sorted(runs, key=lambda each: -each["committed_ms"])


def _sparkline(points: Sequence[Sequence[float]]) -> Markup:
    """A small line chart from 0 upwards as SVG; empty if there are fewer than two points.

    The style sheet sets the colour of the line, to suit a light and a dark page.
    """
    if len(points) < 2:
        return Markup()
    low = points[0][0]
    span = max(1.0, points[-1][0] - low)
    most = max(1e-12, *(y for _, y in points))
    coordinates = [
        (
            f"{(x - low) / span * (_WIDTH - 4) + 2:.1f}",
            f"{_HEIGHT - 2 - y / most * (_HEIGHT - 4):.1f}",
        )
        for x, y in points
    ]
    line = " ".join(",".join(each) for each in coordinates)
    end_x, end_y = coordinates[-1]
    title = f"from {points[0][1]:,.4g} to {points[-1][1]:,.4g}, at most {most:,.4g}"
    return Markup(  # noqa: S704  # holds numbers only
        f'<svg class="spark" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}"'
        f' role="img"><title>{title}</title><polyline points="{line}"/>'
        f'<circle cx="{end_x}" cy="{end_y}" r="2"/></svg>'
    )


def _shown(value: Any) -> Any:
    """Escapes control characters and direction marks in a text. Jinja escapes HTML afterwards."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _ago(ms: int | None, now_ms: int) -> Markup:
    """`3 h ago`, with the time itself as a tooltip; a dash if `ms` is `None`."""
    if ms is None:
        return _UNKNOWN
    minutes = max(0, now_ms - ms) // MINUTE_MS
    text = f"{minutes} min"
    if minutes >= _DAYS_FROM_MINUTES:
        text = f"{minutes // (24 * 60)} d"
    elif minutes >= _HOURS_FROM_MINUTES:
        text = f"{minutes // 60} h"
    return Markup('<span title="{}">{} ago</span>').format(utc_text(ms), text)


def _name(key: str) -> Markup:
    """A table's key, with a possible line break (`<wbr>`) after each slash and underscore."""
    text = str(escape(printable(key)))
    return Markup(text.replace("/", "/<wbr>").replace("_", "_<wbr>"))  # noqa: S704  # escaped


def _mood(score: float | None) -> str:
    """The CSS class of a score's colour."""
    if score is None:
        return "soft"
    if score < _BAD:
        return "bad"
    return "fair" if score < _FAIR else "good"
