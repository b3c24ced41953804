"""The study's page and its charts, from what was measured alone."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from string import Template

from benchmarks.study.arms import ARMS
from benchmarks.study.batches import PROPERTIES, SEED, TASKS
from benchmarks.study.days import days_table, keep
from benchmarks.study.figures import (
    ArmFigures,
    by_arm,
    extent,
    figures_of,
    median_line,
    total_line,
    type_of_arms,
)
from benchmarks.study.raw import WHOLE_ITERATIONS, StudyRun, best_runs, find_runs, is_smallest
from lakehouse.report.chart import Series, line_chart

_PAGE = Path(__file__).with_name("page.md")
# What the study that is repeated ran, and what it had no storage for.
_ASKED = (
    "1,000 rows a batch, on disk",
    "100,000 rows a batch, on disk",
    "1,000,000 rows a batch, on disk",
    "1,000 rows a batch, on S3's protocol, 20 ms for each request",
)
_SECTION = re.compile(
    r"^### (?P<kind>\d[^:\n]*): (?P<iterations>\d+) iterations, repetitions: (?P<repetitions>\d+).*?(?=^### |^Each cell)",
    re.MULTILINE | re.DOTALL,
)
_SMOOTHED = 10


def write_report(output: Path, page: Path) -> list[str]:
    """Writes the page, its pictures in `pictures` and the totals of its runs in `benchmarks` beside it; the head of each run.

    The page is made of the run with most iterations for each size of batch and each storage. A section of the page stays, with its date
    and its machine, where nothing as long was measured here; a whole study is taken in any case, as for the charts and the first table.
    """
    runs = best_runs([*find_runs(output)])
    for run in runs:
        run.write_parquet()
    main = next((run for run in runs if run.plan.latency_ms is None), None)
    pictures = _draw(main, page.parent / "pictures") if main else []
    sections = _sections(runs, page.read_text() if page.exists() else "")
    values = {
        "results": "\n\n".join(sections.values()) or "Nothing was measured yet.",
        "charts": "\n\n".join(f"![{title}](pictures/{name})" for title, name in pictures),
        "not_run": _not_run(sections.keys()),
        "days": days_table(
            keep(
                page.parent / "benchmarks" / "study-runs.jsonl",
                [run for run in runs if _is_of_all_arms(run)],
            )
        ),
        "document": _document_table(main),
        "decided": _decided(),
    }
    page.write_text(Template(_PAGE.read_text()).substitute(values))
    return [_head(run) for run in runs]


def is_whole(run: StudyRun) -> bool:
    """Whether a run is all of what the study asks for at its smallest size, and may be the page in `docs`."""
    plan = run.plan
    return (
        is_smallest(plan.rows, plan.latency_ms)
        and plan.iterations >= WHOLE_ITERATIONS
        and _is_of_all_arms(run)
    )


def _is_of_all_arms(run: StudyRun) -> bool:
    return set(run.plan.arms) == set(ARMS) and run.is_complete


def _sections(runs: Sequence[StudyRun], page: str) -> dict[str, str]:
    """The section of each kind of run, smallest batches and disk first: of those that were measured here, and of others of the page."""
    kept = {match["kind"]: match for match in _SECTION.finditer(page)}
    found = {kind: match[0].strip() for kind, match in kept.items()}
    for run in runs:
        kind, (repetitions, iterations) = (
            _kind(run.plan.rows, run.plan.latency_ms),
            extent(by_arm(run.iterations)),
        )
        if (
            kind not in kept
            or is_whole(run)
            or repetitions * iterations
            >= int(kept[kind]["repetitions"]) * int(kept[kind]["iterations"])
        ):
            found[kind] = _section(run)
    return {
        kind: found[kind]
        for kind in sorted(
            found, key=lambda kind: ("S3" in kind, int(kind.split()[0].replace(",", "")))
        )
    }


def _kind(rows: int, latency_ms: int | None) -> str:
    return f"{rows:,} rows a batch, " + (
        "on disk" if latency_ms is None else f"on S3's protocol, {latency_ms} ms for each request"
    )


def _head(run: StudyRun) -> str:
    plan, (repetitions, iterations) = run.plan, extent(by_arm(run.iterations))
    asked = (
        ""
        if (iterations, repetitions) == (plan.iterations, plan.repetitions)
        else f" (of {plan.iterations} and {plan.repetitions} asked for)"
    )
    return f"{_kind(plan.rows, plan.latency_ms)}: {iterations} iterations, repetitions: {repetitions}{asked}"


def _section(run: StudyRun) -> str:
    arms = by_arm(run.iterations)
    figures = figures_of(arms)
    machine = "; ".join(f"{name} {value}" for name, value in run.machine.items())
    lines = [
        f"### {_head(run)}",
        "",
        f"{run.iterations[0].began} to {run.iterations[-1].began} UTC. {machine}.",
        "",
        *_main_table(figures),
    ]
    lines += ["", *_phase_table(figures)]
    if any(each.requests for each in figures):
        lines += ["", *_request_table(figures)]
    return "\n".join(lines)


def _main_table(figures: Sequence[ArmFigures]) -> list[str]:
    heads = (
        "arm",
        "total s",
        "beside none",
        "deviation of files",
        "of merge and upkeep, s",
        "of query, s",
        "rewritten / ingested",
    )
    rows = [
        (
            f"`{each.arm}`: {ARMS[each.arm].title}",
            each.seconds.text(0),
            each.ratio.text(3) if each.ratio else "",
            each.files_deviation.text(0),
            each.work_deviation.text(2),
            each.query_deviation.text(2),
            each.compacted_share.text(2)
            + (
                f" + {each.copied_share.text(2)} by merges"
                if each.copied_share.middle >= 0.005
                else ""
            ),
        )
        for each in figures
    ]
    return _table(heads, rows)


def _phase_table(figures: Sequence[ArmFigures]) -> list[str]:
    heads = (
        "arm",
        "a merge, s",
        "a query, s",
        "upkeep, s in all",
        "decisions, s in all",
        "compactions",
        "files at the end",
    )
    rows = [
        (
            f"`{each.arm}`",
            each.merge_seconds.text(2),
            each.query_seconds.text(2),
            each.upkeep_seconds.text(1),
            each.decision_seconds.text(1),
            each.compactions.text(0),
            each.files_at_end.text(0),
        )
        for each in figures
    ]
    return _table(heads, rows)


def _request_table(figures: Sequence[ArmFigures]) -> list[str]:
    phases = sorted(
        {phase for each in figures for phase in each.requests},
        key=["merge", "query", "upkeep"].index,
    )
    rows = [
        (f"`{each.arm}`", *(each.requests[phase].text(0) for phase in phases)) for each in figures
    ]
    return _table(("arm", *(f"requests of {phase}" for phase in phases)), rows)


def _document_table(run: StudyRun | None) -> str:
    """The table of the study that is repeated, and ours of the same arms beside it."""
    ours = {each.arm: each for each in figures_of(by_arm(run.iterations))} if run else {}
    heads = (
        "scenario",
        "theirs: minutes",
        "beside none",
        "ours: minutes",
        "beside none",
        "their deviations: files, merge s, query s",
        "ours",
    )
    base, rows = ARMS["none"].document, list[tuple[str, ...]]()
    for name, arm in ARMS.items():
        each, theirs = ours.get(name), arm.document
        their = (
            ("", "", "")
            if theirs is None
            else (
                f"{theirs[0]:.2f}",
                f"{theirs[0] / base[0]:.3f}",
                f"{theirs[1]:.0f}, {theirs[2]:.2f}, {theirs[3]:.2f}",
            )
        )
        deviations = (
            ""
            if each is None
            else f"{each.files_deviation.middle:.0f}, {each.work_deviation.middle:.2f}, {each.query_deviation.middle:.2f}"
        )
        minutes = "not run" if each is None else f"{each.seconds.middle / 60:.2f}"
        ratio = "" if each is None or each.ratio is None else f"{each.ratio.middle:.3f}"
        rows.append((arm.title, their[0], their[1], minutes, ratio, their[2], deviations))
    return "\n".join(_table(heads, rows))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(heads) + " |",
        "|---|" + "---:|" * (len(heads) - 1),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _not_run(kinds: Collection[str]) -> str:
    missing = [kind for kind in _ASKED if kind not in kinds]
    return (
        f"Not run, so nothing is said about it: {'; '.join(missing)}."
        if missing
        else "All sizes and storages were run."
    )


def _decided() -> str:
    properties = ", ".join(f"`{name}={value}`" for name, value in PROPERTIES.items())
    return f"- Seed {SEED}; {TASKS} tasks make a batch. All arms' tables: {properties}."


def _draw(run: StudyRun, folder: Path) -> list[tuple[str, str]]:
    """Writes the charts of a run; the title and the file of each."""
    arms = by_arm(run.iterations)
    kept = {name: each for name, each in arms.items() if name not in ("none", "optimized")}
    charts = {
        "study-files.png": (
            "Live files after each iteration",
            arms,
            _lines(arms, "files"),
            "files",
        ),
        "study-files-kept.png": (
            "Live files after each iteration, of the arms that compact",
            kept,
            _lines(kept, "files"),
            "files",
        ),
        "study-merge.png": (
            "Seconds of a merge and what Delta does in it (mean of ten)",
            arms,
            _lines(arms, "merge"),
            "seconds",
        ),
        "study-query.png": (
            "Seconds of a query (mean of ten)",
            arms,
            _lines(arms, "query"),
            "seconds",
        ),
        "study-total.png": (
            "Seconds up to each iteration, all phases",
            arms,
            [total_line(each) for each in arms.values()],
            "seconds",
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, drawn, lines, unit) in charts.items():
        series = [Series(name=arm, points=line) for arm, line in zip(drawn, lines, strict=True)]
        (folder / name).write_bytes(
            line_chart(title, series, x_name="iteration", y_name=unit, file_format="png")
        )
    return [(title, name) for name, (title, *_) in charts.items()]


def _lines(arms: type_of_arms, kind: str) -> list[list[tuple[float, float]]]:
    match kind:
        case "files":
            return [median_line(each, lambda one: one.files) for each in arms.values()]
        case "merge":
            return [
                median_line(each, lambda one: one.merge_seconds, window=_SMOOTHED)
                for each in arms.values()
            ]
        case _:
            return [
                median_line(each, lambda one: one.query_seconds, window=_SMOOTHED)
                for each in arms.values()
            ]
