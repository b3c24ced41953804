"""The page `docs/internals/benchmarks.md` and its charts, written from the records alone: `python -m benchmarks page`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.catalog import BENCHMARKS
from benchmarks.figures import Figure, number_text, spread_text
from benchmarks.records import ROOT, Record, recorded
from benchmarks.rows import ROWS, Row
from lakehouse.report.chart import Series, line_chart

_BUSY = 0.25  # of the cores, taken by others: figures that were made beside them are marked
type_of_found = Sequence[tuple[Record, Figure]]

_HEAD = """# Benchmarks

    make bench                     # all of them; each prints what it measures, and this page is written anew
    make bench ONLY=throughput     # one, or several by commas
    python -m benchmarks page      # this page once more, from what is recorded in docs/internals/benchmarks/

Every number below comes from a record in `docs/internals/benchmarks/`, which the named command made. A ratio that is told with its runs is
the middle one of pairs that were measured in turn. A spread is the 95 % interval of the median (of fewer than six runs: the least and
the largest).
"""


def write_page(root: Path = ROOT) -> None:
    """Writes the page and its charts below `root`."""
    records, docs = (
        recorded(root / "docs" / "internals" / "benchmarks"),
        root / "docs" / "internals",
    )
    for name, points in _charts(records).items():
        (docs / "benchmarks" / f"{name}.png").write_bytes(_drawn(name, points))
    (docs / "benchmarks.md").write_text(page(records))


def page(records: Mapping[str, Record]) -> str:
    """The page's text."""
    by_row: dict[str, list[tuple[Record, Figure]]] = {row.name: [] for row in ROWS}
    for record in records.values():
        for figure in record.figures:
            by_row.setdefault(figure.row, []).append((record, figure))
    lines = [
        _HEAD,
        "## Promises about speed\n",
        "| | promise | goal | result |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| [{row.name}](#{row.name.lower()}) | {row.promise} | {row.goal} | {_result(by_row[row.name])} |"
        for row in ROWS
    ]
    for row in ROWS:
        lines += _section(row, by_row[row.name])
    if others := by_row.get("", []):
        lines += ["\n## Other measurements\n", *_table(others)]
    lines += _runs(records)
    return "\n".join(lines) + "\n"


def _result(found: type_of_found) -> str:
    if not found:
        return "not run"
    verdicts = Counter(figure.met for _, figure in found)
    if verdicts[False]:
        return f"**{verdicts[False]} of {verdicts[False] + verdicts[True]} missed**"
    return "met" if verdicts[True] else "stated"


def _section(row: Row, found: type_of_found) -> Iterator[str]:
    yield f"\n## {row.name}\n\n{row.promise}. Goal: {row.goal}.\n"
    missing = [
        name
        for name in row.benchmark.split(",")
        if name not in {record.benchmark for record, _ in found}
    ]
    if found:
        yield from _table(found)
    for name in missing:
        yield f"\nNot run: {_measures(name)}." if found else f"Not run: {_measures(name)}."
    if row.shortfall and any(figure.met is False for _, figure in found):
        yield f"\nWhy it falls short: {row.shortfall}"
    for record in dict.fromkeys(
        record.benchmark for record, figure in found if figure.points and figure.point_unit == "s"
    ):
        yield f"\n![{row.name}: cost by size](benchmarks/{record}.png)"


def _measures(name: str) -> str:
    return (
        f"`make bench ONLY={name}` measures it"
        if name in {each.name for each in BENCHMARKS}
        else f"`make {name}` measures it"
    )


def _table(found: type_of_found) -> Iterator[str]:
    yield "| figure | measured | goal | beside it, in the same run | spread | by |"
    yield "|---|---:|---|---|---|---|"
    for record, figure in found:
        verdict = {None: "", True: ": met", False: ": **missed**"}[figure.met]
        beside = "; ".join(
            f"{name} {number_text(value, figure.unit)}" for name, value in figure.peers.items()
        )
        if figure.points:
            beside = "; ".join(
                f"{size:,.0f} {figure.size_of}: {number_text(cost, figure.point_unit)}"
                for size, cost in figure.points
            )
        spread = spread_text(figure) if figure.samples else ""
        value = number_text(figure.value, figure.unit)
        yield f"| {figure.name} | {value} | {figure.goal}{verdict} | {beside} | {spread} | [{record.benchmark}](#runs) |"


def _runs(records: Mapping[str, Record]) -> Iterator[str]:
    yield "\n## Runs\n"
    yield "| benchmark | command | made | took | machine | versions |"
    yield "|---|---|---|---:|---|---|"
    for record in records.values():
        machine, versions = (
            record.machine,
            ", ".join(f"{name} {version}" for name, version in record.versions.items()),
        )
        busy = (
            f"; **others kept {record.busy:.0%} of it busy**" if (record.busy or 0) > _BUSY else ""
        )
        place = f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}{busy}"
        yield f"| {record.benchmark} | `{record.command}` | {record.began} | {record.seconds:,.0f} s | {place} | {versions} |"
    for benchmark in BENCHMARKS:
        if benchmark.name not in records:
            yield f"| {benchmark.name} | `make bench ONLY={benchmark.name}` | not run | | | |"


def _charts(records: Mapping[str, Record]) -> dict[str, list[Figure]]:
    grown = {
        name: [figure for figure in record.figures if figure.points and figure.point_unit == "s"]
        for name, record in records.items()
    }
    return {name: figures for name, figures in grown.items() if figures}


def _drawn(name: str, figures: Sequence[Figure]) -> bytes:
    """Cost by size: a straight line is one that grows no faster than its size."""
    lines = [
        Series(
            name=f"{figure.name}: exponent {number_text(figure.value, '')}", points=figure.points
        )
        for figure in figures
    ]
    return line_chart(
        name, lines, x_name=figures[0].size_of, y_name=figures[0].point_unit, file_format="png"
    )
