"""Runs of all arms side by side: whether runs on different days agree in their order, and what is the cheapest at each size.

What a run measured stays on its machine; `docs/internals/benchmarks/study-runs.jsonl` keeps a line for each run of all arms, its totals.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from benchmarks.study.figures import by_arm, extent, figures_of
from benchmarks.study.raw import WHOLE_ITERATIONS, StudyRun, is_smallest


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """When a run of all arms began, UTC, and the seconds of each arm, the median over its repetitions; `rows` are those of a batch."""

    began: str
    repetitions: int
    iterations: int
    seconds: Mapping[str, float]
    rows: int = 1_000
    latency_ms: int | None = None

    @property
    def is_smallest(self) -> bool:
        """Whether it is of the study's smallest batches, on disk."""
        return is_smallest(self.rows, self.latency_ms)

    @property
    def order(self) -> list[str]:
        """The arms, the fastest first."""
        return sorted(self.seconds, key=self.seconds.__getitem__)


def totals_of(run: StudyRun) -> RunTotals:
    """A run's totals, of as many iterations as every arm has done."""
    arms = by_arm(run.iterations)
    repetitions, iterations = extent(arms)
    return RunTotals(
        began=run.iterations[0].began,
        repetitions=repetitions,
        iterations=iterations,
        seconds={each.arm: round(each.seconds.middle, 1) for each in figures_of(arms)},
        rows=run.plan.rows,
        latency_ms=run.plan.latency_ms,
    )


def keep(file: Path, runs: Sequence[StudyRun]) -> list[RunTotals]:
    """Adds what is not there yet of `runs` to the file; all of it, the oldest first."""
    kept = {each.began: each for each in kept_totals(file)}
    kept |= {each.began: each for each in map(totals_of, runs)}
    totals = [kept[began] for began in sorted(kept)]
    if totals:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(asdict(each)) + "\n" for each in totals))
    return totals


def kept_totals(file: Path) -> list[RunTotals]:
    """The totals in the file."""
    return (
        [RunTotals(**json.loads(line)) for line in file.read_text().splitlines()]
        if file.exists()
        else []
    )


def days_table(totals: Sequence[RunTotals]) -> str:
    """Each run's totals beside those of no compaction, with the arm's place in the order; then whether the orders agree.

    Runs of larger batches, on S3, of fewer iterations than the whole study has, or of other arms than the newest, are left out.
    """
    totals = [each for each in totals if each.is_smallest and each.iterations >= WHOLE_ITERATIONS]
    if not totals:
        return "No whole run was made."
    totals = [each for each in totals if each.seconds.keys() == totals[-1].seconds.keys()]
    heads = [
        f"{each.began[:16]}, {each.iterations} iterations, repetitions: {each.repetitions}"
        for each in totals
    ]
    lines = ["| arm | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for arm in totals[-1].order:
        cells = [
            f"{each.seconds[arm] / each.seconds['none']:.3f} ({each.order.index(arm) + 1}.)"
            for each in totals
        ]
        lines.append(f"| `{arm}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _agreement(totals)])


def _agreement(totals: Sequence[RunTotals]) -> str:
    if len(totals) == 1:
        return "One whole run was made, so nothing is said about another day."
    changed = [
        f"`{one}` and `{other}` ({', '.join(f'{abs(each.seconds[one] / each.seconds[other] - 1):.1%}' for each in totals)})"
        for one, other in combinations(totals[-1].order, 2)
        if len({each.seconds[one] < each.seconds[other] for each in totals}) > 1
    ]
    if not changed:
        return "All runs agree in the order of the arms."
    return f"Runs agree in the order of the arms but for these pairs, with the distance of their totals in each run: {'; '.join(changed)}."
