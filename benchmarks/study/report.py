"""The study's page and its charts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from string import Template

from benchmarks.charts import Labels, Series, line_chart
from benchmarks.study.arms import ARMS
from benchmarks.study.batches import PROPERTIES, SEED, TASKS
from benchmarks.study.figures import by_arm, median_line, total_line, type_of_arms
from benchmarks.study.raw import WHOLE_ITERATIONS, Iteration, StudyRun, is_smallest
from benchmarks.study.totals import (
    RunTotals,
    keep,
    longest,
    main_table,
    sizes_table,
    whole_runs_sentence,
)

_PAGE = Path(__file__).with_name("page.md")
_SMOOTHED = 10
_TITLES = {
    "study-total.png": "Seconds up to each iteration, all phases",
    "study-files-kept.png": "Live files after each iteration, of the arms that compact",
    "study-merge.png": "Seconds of a merge and what Delta does in it (mean of ten)",
    "study-query.png": "Seconds of a query (mean of ten)",
}


def write_report(run: StudyRun, internals: Path) -> Path:
    """Writes the page; returns where it is.

    A run that `counts` adds its totals to those below `internals`, and rewrites the page there. Any
    other run gets a page of its own in its folder.
    """
    folder = internals if counts(run) else run.folder
    totals = keep(folder / "benchmarks" / "study-runs.jsonl", [run])
    if is_smallest(run.plan.rows):
        _draw(run, folder / "pictures")
    (folder / "study.md").write_text(page(totals, folder / "pictures"))
    return folder / "study.md"


def counts(run: StudyRun) -> bool:
    """Whether the run is of all arms, and of the smallest batches as long as the published study."""
    is_long = run.plan.iterations >= WHOLE_ITERATIONS or not is_smallest(run.plan.rows)
    return is_long and set(run.plan.arms) == set(ARMS) and run.is_complete


def page(totals: Sequence[RunTotals], pictures: Path) -> str:
    """The text of the page, with the charts that are in `pictures`."""
    chosen = longest(totals)
    main = next((run for run in chosen if run.is_smallest), None)
    charts = [
        f"![{title}](pictures/{name})"
        for name, title in _TITLES.items()
        if (pictures / name).exists()
    ]
    return Template(_PAGE.read_text()).substitute(
        main="No run of 1,000 rows was made." if main is None else main_table(main),
        began="" if main is None else f" Our run began on {main.began} UTC.",
        whole_runs=whole_runs_sentence(totals),
        sizes=sizes_table([run for run in chosen if run is not main]),
        charts="\n\n".join(charts),
        seed=SEED,
        tasks=TASKS,
        properties=", ".join(f"`{name}={value}`" for name, value in PROPERTIES.items()),
    )


def _draw(run: StudyRun, folder: Path) -> None:
    arms = by_arm(run.iterations)
    compacting = {name: each for name, each in arms.items() if name not in ("none", "optimized")}
    totals = {name: total_line(each) for name, each in arms.items()}
    charts = {
        "study-total.png": (totals, "seconds"),
        "study-files-kept.png": (_lines(compacting, lambda one: one.files, window=1), "files"),
        "study-merge.png": (_lines(arms, lambda one: one.merge_seconds), "seconds"),
        "study-query.png": (_lines(arms, lambda one: one.query_seconds), "seconds"),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, (lines, unit) in charts.items():
        series = [Series(name=arm, points=line) for arm, line in lines.items()]
        labels = Labels(title=_TITLES[name], x="iteration", y=unit)
        chart = line_chart(labels, series, file_format="png")
        (folder / name).write_bytes(chart)


def _lines(
    arms: type_of_arms, value: Callable[[Iteration], float], *, window: int = _SMOOTHED
) -> dict[str, list[tuple[float, float]]]:
    return {name: median_line(each, value, window=window) for name, each in arms.items()}
