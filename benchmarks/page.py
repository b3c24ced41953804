"""Writes `docs/internals/benchmarks.md` and its charts from the records."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.catalog import NAMES
from benchmarks.charts import Labels, Series, line_chart
from benchmarks.figures import Figure, number_text
from benchmarks.records import ROOT, Record, recorded
from benchmarks.rows import ROWS, Row

# The share of the cores that other programs may take before the page says so.
_BUSY_SHARE = 0.25

_HEAD = """# Benchmarks

    make bench                     # run all benchmarks; each prints its figures and rewrites this page
    make bench ONLY=throughput     # run one, or several separated by commas
    make study                     # run the compaction study (P1, P6)
    python -m benchmarks page      # rewrite this page from the records

The [records](benchmarks) hold every figure with its goal, its repetitions, what it was compared with in the same run, the
machine and the versions. A ratio is the median of pairs that were measured in turn.
"""


def write_page(root: Path = ROOT) -> None:
    """Writes the page and its charts below `root`."""
    internals = root / "docs" / "internals"
    records = recorded(internals / "benchmarks")
    for name, figures in _growth(records).items():
        (internals / "benchmarks" / f"{name}.png").write_bytes(_chart(name, figures))
    (internals / "benchmarks.md").write_text(page(records))


def page(records: Mapping[str, Record]) -> str:
    """The text of the page: a line per promise, missed goals with their reasons, charts."""
    figures = [figure for record in records.values() for figure in record.figures]
    by_row = {row.name: [each for each in figures if each.row == row.name] for row in ROWS}
    lines = [
        _HEAD,
        "| | promise | goal | measured | result |",
        "|---|---|---|---|---|",
        *(_promise(row, by_row[row.name]) for row in ROWS),
        "\n## Missed goals\n",
        *(line for row in ROWS for line in _misses(row, by_row[row.name])),
        "## Cost by size (P13)\n",
        *(f"![{name}](benchmarks/{name}.png)" for name in _growth(records)),
        "\n## Runs\n",
        *_runs(records),
    ]
    return "\n".join(lines) + "\n"


def _promise(row: Row, figures: Sequence[Figure]) -> str:
    by_name = {figure.name: figure for figure in figures}
    measured = [
        f"{label} {number_text(by_name[name].value, by_name[name].unit)}".strip()
        for label, name in row.shown.items()
        if name in by_name
    ]
    cells = (row.name, row.promise, row.goal, "; ".join(measured), _result(figures))
    return f"| {' | '.join(cells)} |"


def _result(figures: Sequence[Figure]) -> str:
    if not figures:
        return "not run"
    verdicts = Counter(figure.met for figure in figures)
    if verdicts[False]:
        return f"**{verdicts[False]} of {verdicts[False] + verdicts[True]} missed**"
    return "met" if verdicts[True] else "stated"


def _misses(row: Row, figures: Sequence[Figure]) -> Iterator[str]:
    missed = [figure for figure in figures if figure.met is False]
    if missed:
        yield f"**{row.name}.** {row.shortfall}\n"
        for figure in missed:
            value = number_text(figure.value, figure.unit)
            yield f"- {figure.name}: {value}, goal {figure.goal}"
        yield ""


def _runs(records: Mapping[str, Record]) -> Iterator[str]:
    """Dates and machines of the records, and which of them other programs disturbed."""
    if records:
        began = sorted(record.began for record in records.values())
        machines = sorted({_machine(record) for record in records.values()})
        yield f"Recorded from {began[0]} to {began[-1]} on {'; '.join(machines)}."
    disturbed = [
        f"{name} ({record.busy:.0%})"
        for name, record in records.items()
        if record.busy is not None and record.busy > _BUSY_SHARE
    ]
    if disturbed:
        yield f"Other programs used much of the machine during {', '.join(disturbed)}."
    missing = [name for name in NAMES if name not in records]
    if missing:
        yield f"Not run: {', '.join(missing)}."


def _machine(record: Record) -> str:
    machine = record.machine
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return (
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']} ({versions})"
    )


def _growth(records: Mapping[str, Record]) -> dict[str, list[Figure]]:
    """Benchmark -> figures that say how seconds grow with a size."""
    growth = {
        name: [figure for figure in record.figures if figure.points and figure.point_unit == "s"]
        for name, record in records.items()
    }
    return {name: figures for name, figures in growth.items() if figures}


def _chart(name: str, figures: Sequence[Figure]) -> bytes:
    """Draws seconds by size; proportional growth is a straight line."""
    lines = [
        Series(
            name=f"{figure.name}: exponent {number_text(figure.value, '')}", points=figure.points
        )
        for figure in figures
    ]
    labels = Labels(title=name, x=figures[0].size_of, y=figures[0].point_unit)
    return line_chart(labels, lines, file_format="png")
