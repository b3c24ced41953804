"""Reads the documents of `health`, `plan`, `history` and `costs`, and renders them as one page.

Nothing needs Spark, and each log is read once. A table that cannot be read is named, and all others
are still shown.

The page is one HTML file, without scripts.

**Safety properties** (`report/test_page.py`)
- Every text is escaped: a table named `<script>` shows as text.
- Control characters and direction marks are shown escaped, as in the terminal.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError
from lakehouse.base.reasons import Reason
from lakehouse.base.text import (
    DAY_MS,
    Document,
    count_of,
    printable,
    size_text,
    span_text,
    usd_text,
    utc_text,
)
from lakehouse.compact.assess import account_of
from lakehouse.declare.table import Table
from lakehouse.delta.commits import Commits
from lakehouse.delta.snapshot import TableFacts
from lakehouse.lake.lake import Found, Lake
from lakehouse.watch.costs.plan import Charge, costs_document, day_of, midnight
from lakehouse.watch.costs.run import read_charges
from lakehouse.watch.documents import health_document, history_document
from lakehouse.watch.due import DueReading, plan_operations

# Compactions of this many past days are listed.
_DAYS = 7
# The line of a table's file counts has at most this many points; more could not be seen.
_POINTS = 60
# The costs cover this many past days.
_COST_DAYS = 30
_STOPPED = (Reason.BREAKER_OPEN.name, Reason.REWRITE_LOOP.name)


def read_report(
    lake: Lake,
    declared: Mapping[str, Table],
    *,
    failed_checks: Iterable[tuple[str, str]] = (),
) -> Document:
    """The document of `lakehouse report --json`, which the page shows.

    `failed_checks` are assets and names of checks, from Dagster's records.
    """
    now = now_ms()
    histories = dict[str, Document]()
    points = dict[str, list[list[int]]]()

    def take(table: Table, facts: TableFacts) -> None:
        points[table.key] = _points(facts.history, facts.snapshot.file_count)
        with suppress(LakehouseError):  # the operations; the table's health is shown nevertheless
            account = account_of(lake, table, facts)
            recent = [
                commit
                for commit in reversed(facts.history.commits)
                if commit.committed_ms >= now - _DAYS * DAY_MS
            ]
            version = facts.snapshot.version
            histories[table.key] = history_document(table.key, version, recent, account)

    reading = plan_operations(lake, declared, list(declared.values()), on_facts=take)
    since = day_of(now - _COST_DAYS * DAY_MS)
    charges = list[Charge]()
    cost_problem = ""
    try:
        charges = read_charges(lake, since=since)
    except LakehouseError as error:
        cost_problem = str(error)
    return {
        "lake": lake.settings.root,
        "created_ms": now,
        "attention": _attention(reading, failed_checks, cost_problem),
        "tables": _tables(reading, points),
        "history": [histories[key] for key in declared if key in histories],
        "costs": costs_document(charges, by="table", since=since.isoformat()),
        "costs_by_day": _costs_by_day(charges),
    }


def _costs_by_day(charges: Iterable[Charge]) -> list[list[float]]:
    """The start of each day with charges, in ms, and its costs in USD."""
    totals = defaultdict[date, Decimal](Decimal)
    for charge in charges:
        totals[charge["x_day"]] += charge["BilledCost"]
    return [[int(midnight(day).timestamp()) * 1_000, float(totals[day])] for day in sorted(totals)]


def _tables(reading: DueReading, points: Mapping[str, list[list[int]]]) -> list[Document]:
    """The tables: first those that cannot be read, then by ascending health score."""
    operations = defaultdict[str, list[Document]](list)
    for each in reading.operations:
        operations[each.table].append(each.as_json())
    tables = list[Document]()
    for found in reading.fleet.tables:
        key = found.table.key
        health = Found(
            table=found.table, value=found.value and found.value.health, error=found.error
        )
        tables.append(
            {
                "table": key,
                "owner": found.table.owner,
                "problem": str(found.error) if found.error else "",
                "health": health_document(health),
                "operations": operations[key],
                "file_counts": points.get(key, []),
            }
        )
    return sorted(tables, key=_health_rank)


def _health_rank(table: Document) -> tuple[bool, float]:
    score = table["health"]["score"]
    return not table["problem"], 101 if score is None else score


def _points(history: Commits, file_count: int) -> list[list[int]]:
    """The time and the file count after each commit, thinned to `_POINTS`, with the newest."""
    times = [commit.committed_ms for commit in history.commits]
    points = list(zip(times, history.file_counts(file_count), strict=True))
    step = max(1, ceil(len(points) / _POINTS))
    return [[ms, count] for ms, count in reversed(points[::-1][::step])]


def _attention(
    reading: DueReading, failed_checks: Iterable[tuple[str, str]], cost_problem: str
) -> list[dict[str, str]]:
    """What needs a person: errors, stopped compactions, stopped writes, and failed checks."""
    items = [{"table": "", "sentence": cost_problem}] if cost_problem else []
    items += [{"table": each.table.key, "sentence": str(each.error)} for each in reading.errors]
    for each in reading.operations:
        if each.reason in _STOPPED or each.stops_writes:
            items.append({"table": each.table, "sentence": each.sentence})
    for asset, check in sorted(failed_checks):
        sentence = f"the check {check} failed; its page in Dagster shows why"
        items.append({"table": asset, "sentence": sentence})
    return items


_UNKNOWN = Markup('<span class="soft">–</span>')


def render_page(report: Document) -> str:
    """The HTML of a report (`report.run.read_report`)."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )

    def unless_unknown(text_of: Callable[[Any], str]) -> Callable[[Any], str]:
        return lambda value: _UNKNOWN if value is None else text_of(value)

    def ago(ms: int) -> Markup:
        """`3 h ago`, with the time itself as a tooltip."""
        age = span_text(max(0, report["created_ms"] - ms) / 1000)
        return Markup('<span title="{}">{} ago</span>').format(utc_text(ms), age)

    environment.filters |= {
        "size": unless_unknown(size_text),
        "count": unless_unknown("{:,}".format),
        "usd": unless_unknown(usd_text),
        "seconds": unless_unknown("{:.1f} s".format),
        "time": utc_text,
        "noun": count_of,
        "ago": unless_unknown(ago),
        "name": _name,
    }
    template = environment.get_template("page.html.j2")
    costs_of = {each["name"]: each["usd"] for each in report["costs"]["groups"]}
    return template.render(report=report, runs=_runs(report), costs_of=costs_of)


def _runs(report: Document) -> list[Document]:
    """The listed compactions of all tables, the newest first."""
    runs = list[Document]()
    for history in report["history"]:
        for commit in history["commits"]:
            if run := commit["compaction"]:
                runs.append({"table": history["table"], **commit, **run})
    return sorted(runs, key=lambda each: -each["committed_ms"])


def _shown(value: Any) -> Any:
    """Escapes control characters and direction marks in a text. Jinja escapes HTML afterwards."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _name(key: str) -> Markup:
    """A table's key, with a possible line break (`<wbr>`) after each slash and underscore."""
    text = str(escape(printable(key)))
    return Markup(text.replace("/", "/<wbr>").replace("_", "_<wbr>"))  # noqa: S704  # escaped
