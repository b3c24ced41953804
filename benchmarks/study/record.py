"""The study's figures on the page of benchmarks: P1 and P6."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from benchmarks.figures import Figure
from benchmarks.records import Record
from benchmarks.study.figures import ArmFigures, Spread, by_arm, figures_of
from benchmarks.study.raw import StudyRun
from benchmarks.study.totals import RunTotals

_OURS = ("ours",)
_MOST_BESIDE_NONE, _MOST_DEVIATION = 0.35, 14


def record_of(run: StudyRun, totals: Sequence[RunTotals] = ()) -> Record | None:
    """The record of a run; `None` unless it has an arm of ours and no compaction.

    `totals` are runs of all arms; the longest of each other size counts.
    """
    arms = by_arm(run.iterations)
    figures = {each.arm: each for each in figures_of(arms)}
    if "none" not in figures or not figures.keys() & set(_OURS):
        return None
    plan, first = run.plan, run.iterations[0]
    counted = [
        one for repetitions in arms.values() for iterations in repetitions for one in iterations
    ]
    return Record(
        benchmark="study",
        command=f"make study ROWS={plan.rows} ITERATIONS={plan.iterations} REPETITIONS={plan.repetitions}",
        figures=(*_figures(figures, len(arms["none"][0])), *_of_other_sizes(totals)),
        seconds=sum(one.seconds for one in counted),
        busy=None,
        began=f"{datetime.fromisoformat(first.began):%Y-%m-%d %H:%M} UTC",
    )


def _figures(figures: Mapping[str, ArmFigures], iterations: int) -> Iterator[Figure]:
    others = {name: each for name, each in figures.items() if name not in _OURS}
    best = min(others.values(), key=lambda each: each.seconds.middle)
    for ours in (figures[name] for name in _OURS if name in figures):
        peers = {
            name: each.ratio.middle
            for name, each in others.items()
            if each.ratio is not None and name != "none"
        }
        name = f"`{ours.arm}`, {iterations} iterations"
        yield Figure(
            name=f"{name}: total seconds beside no compaction",
            value=ours.ratio.middle,
            unit="times",
            row="P1",
            at_most=_MOST_BESIDE_NONE,
            peers=peers,
            samples=_ends(ours.ratio),
        )
        yield Figure(
            name=f"{name}: total seconds beside the best other arm, `{best.arm}`",
            value=ours.seconds.middle / best.seconds.middle,
            unit="times",
            row="P1",
            at_most=1.0,
        )
        yield Figure(
            name=f"{name}: deviation of the file count",
            value=ours.files_deviation.middle,
            row="P1",
            at_most=_MOST_DEVIATION,
            peers={name: each.files_deviation.middle for name, each in others.items()},
        )
        rewriting = {
            name: others[name].compacted_share.middle
            for name in ("every20", "auto", "both")
            if name in others
        }
        yield Figure(
            name=f"{name}: bytes rewritten per byte that was new",
            value=ours.compacted_share.middle,
            row="P6",
            at_most=min(
                (rewriting[name] for name in ("every20", "auto") if name in rewriting), default=None
            ),
            peers=rewriting,
        )


def _of_other_sizes(totals: Sequence[RunTotals]) -> Iterator[Figure]:
    longest = {
        (each.latency_ms is not None, each.rows): each
        for each in sorted(
            totals, key=lambda each: (each.repetitions * each.iterations, each.began)
        )
        if not each.is_smallest
    }
    for _, run in sorted(longest.items(), key=lambda pair: pair[0]):
        best = min((name for name in run.seconds if name not in _OURS), key=run.seconds.__getitem__)
        storage = (
            ""
            if run.latency_ms is None
            else f" on S3's protocol, {run.latency_ms} ms for each request"
        )
        size = f"{run.rows:,} rows a batch{storage}, {run.iterations} iterations"
        for name in _OURS:
            yield Figure(
                name=f"`{name}`, {size}: total seconds beside the best other arm, `{best}`",
                value=run.seconds[name] / run.seconds[best],
                unit="times",
                row="P1",
                at_most=1.0,
            )


def _ends(spread: Spread) -> tuple[float, ...]:
    """The repetitions of a spread; empty if there was only one."""
    return () if spread.low == spread.high else (spread.low, spread.middle, spread.high)
