"""The totals of all runs, kept in `docs/internals/benchmarks/study-runs.jsonl`, and their tables.

The iterations of a run stay on the machine that measured them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.study.arms import ARMS
from benchmarks.study.figures import by_arm, extent, figures_of
from benchmarks.study.raw import WHOLE_ITERATIONS, StudyRun, is_smallest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """The totals of a run, by arm; medians over its repetitions.

    `began` is in UTC, `rows` is the size of a batch. `rewritten` is the ratio of bytes written by
    compactions to new bytes. The last three mappings are empty where they were not recorded. Runs
    on S3 (`latency_ms`, `requests`) are records of an earlier program.
    """

    began: str
    repetitions: int
    iterations: int
    seconds: Mapping[str, float]
    rows: int = 1_000
    latency_ms: int | None = None
    files_deviation: Mapping[str, float] = field(default_factory=dict[str, float])
    rewritten: Mapping[str, float] = field(default_factory=dict[str, float])
    requests: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def is_smallest(self) -> bool:
        """Whether it has the study's smallest batches, on disk."""
        return is_smallest(self.rows, self.latency_ms)

    @property
    def title(self) -> str:
        """The size of its batches, its storage and its length."""
        storage = "" if self.latency_ms is None else f", S3 with {self.latency_ms} ms per request"
        return f"{self.rows:,} rows{storage}: {self.iterations} iterations"

    def against_none(self, arm: str) -> float | None:
        """The arm's seconds as a ratio to those of no compaction."""
        if arm not in self.seconds or "none" not in self.seconds:
            return None
        return self.seconds[arm] / self.seconds["none"]


def totals_of(run: StudyRun) -> RunTotals:
    """The totals of a run, over as many iterations as every arm has completed."""
    arms = by_arm(run.iterations)
    repetitions, iterations = extent(arms)
    figures = figures_of(arms)
    return RunTotals(
        began=run.iterations[0].began,
        repetitions=repetitions,
        iterations=iterations,
        seconds={each.arm: round(each.seconds.middle, 1) for each in figures},
        rows=run.plan.rows,
        files_deviation={each.arm: round(each.files_deviation.middle, 2) for each in figures},
        rewritten={each.arm: round(each.compacted_share.middle, 2) for each in figures},
    )


def keep(file: Path, runs: Sequence[StudyRun]) -> list[RunTotals]:
    """Adds the totals of `runs` to the file; returns all of them, the oldest first."""
    kept = {each.began: each for each in kept_totals(file)}
    kept |= {each.began: each for each in map(totals_of, runs)}
    totals = [kept[began] for began in sorted(kept)]
    if totals:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(asdict(each)) + "\n" for each in totals))
    return totals


def kept_totals(file: Path) -> list[RunTotals]:
    """The totals in the file."""
    if not file.exists():
        return []
    return [RunTotals(**json.loads(line)) for line in file.read_text().splitlines()]


def longest(totals: Sequence[RunTotals]) -> list[RunTotals]:
    """The longest and newest run of each size and storage, smallest batches on disk first."""
    chosen: dict[tuple[bool, int], RunTotals] = {}
    for each in totals:
        place = (each.latency_ms is not None, each.rows)
        if place not in chosen or each.iterations >= chosen[place].iterations:
            chosen[place] = each
    return [chosen[place] for place in sorted(chosen)]


def main_table(run: RunTotals) -> str:
    """All arms, with the figures of the published study."""
    heads = (
        "arm",
        "theirs, minutes",
        "of none",
        "ours, s",
        "of none",
        "file count deviates, theirs",
        "ours",
        "rewritten per new byte",
    )
    published_none = ARMS["none"].published
    assert published_none is not None
    rows: list[tuple[str, ...]] = []
    for name, arm in ARMS.items():
        published = ("", "", "")
        if arm.published is not None:
            minutes, deviation = arm.published
            published = (f"{minutes:.2f}", f"{minutes / published_none[0]:.3f}", f"{deviation}")
        rows.append(
            (
                f"`{name}`: {arm.title}",
                *published[:2],
                _number(run.seconds.get(name), 0),
                _number(run.against_none(name), 3),
                published[2],
                _number(run.files_deviation.get(name), 0),
                _number(run.rewritten.get(name), 2),
            )
        )
    return _table(heads, rows)


def sizes_table(runs: Sequence[RunTotals]) -> str:
    """The other sizes and storages: seconds, ratios, and requests if counted."""
    if not runs:
        return "No other size was run."
    rows = [(f"`{name}`", *(_cell(run, name) for run in runs)) for name in ARMS]
    return _table(("arm", *(run.title for run in runs)), rows)


def whole_runs_sentence(totals: Sequence[RunTotals]) -> str:
    """The range of each arm's ratio to no compaction, over all whole runs."""
    whole = [each for each in totals if each.is_smallest and each.iterations >= WHOLE_ITERATIONS]
    if not whole:
        return "No whole run was made."
    ranges: list[str] = []
    for arm in ARMS:
        ratios = [ratio for run in whole if (ratio := run.against_none(arm)) is not None]
        if ratios and arm != "none":
            ranges.append(f"`{arm}` {min(ratios):.3f} to {max(ratios):.3f}")
    return f"Whole runs: {len(whole)}. Seconds as a ratio to no compaction: {', '.join(ranges)}."


def _cell(run: RunTotals, arm: str) -> str:
    if arm not in run.seconds:
        return "not run"
    ratio = run.against_none(arm)
    parts = [f"{run.seconds[arm]:,.0f} s" + ("" if ratio is None else f" ({ratio:.3f})")]
    if arm in run.requests:
        parts.append(f"{run.requests[arm]:,.0f} requests")
    return ", ".join(parts)


def _number(value: float | None, digits: int) -> str:
    return "not run" if value is None else f"{value:,.{digits}f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, *rows]
    texts = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([texts[0], "|---|" + "---:|" * (len(heads) - 1), *texts[1:]])
