"""The study's figures of each arm, from its iterations. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev

from benchmarks.study.raw import Iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median, minimum and maximum over repetitions."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """An arm's figures over its repetitions, of as many iterations as every arm has completed.

    `ratio` compares its seconds with the arm `none` of the same repetition; `None` if not measured.
    """

    arm: str
    seconds: Spread
    ratio: Spread | None
    files_deviation: Spread
    compacted_share: Spread


type_of_arms = Mapping[str, Sequence[Sequence[Iteration]]]


def by_arm(iterations: Iterable[Iteration]) -> type_of_arms:
    """Arm -> the repetitions that all arms completed, or the common part of the first one."""
    found: dict[str, dict[int, list[Iteration]]] = {}
    for each in iterations:
        found.setdefault(each.arm, {}).setdefault(each.repetition, []).append(each)
    length = max((len(each) for arm in found.values() for each in arm.values()), default=0)
    numbers = sorted({number for arm in found.values() for number in arm})
    whole = [
        number
        for number in numbers
        if all(len(arm.get(number, ())) == length for arm in found.values())
    ]
    if whole:
        return {name: [arm[number] for number in whole] for name, arm in found.items()}
    length = min((len(arm.get(1, ())) for arm in found.values()), default=0)
    return {name: [arm[1][:length]] for name, arm in found.items()} if length else {}


def extent(arms: type_of_arms) -> tuple[int, int]:
    """The number of repetitions, and of iterations in each."""
    first = next(iter(arms.values()), ())
    return len(first), len(first[0]) if first else 0


def figures_of(arms: type_of_arms, *, base: str = "none") -> list[ArmFigures]:
    """The figures of each arm, in the order of `arms`."""
    base_seconds = [total(each) for each in arms.get(base, ())]
    return [_figures(name, repetitions, base_seconds) for name, repetitions in arms.items()]


def total(iterations: Iterable[Iteration]) -> float:
    """Seconds of all phases."""
    return sum(each.seconds for each in iterations)


def over_repetitions(values: Sequence[float]) -> Spread:
    """Median, minimum and maximum."""
    return Spread(middle=median(values), low=min(values), high=max(values))


def median_line(
    repetitions: Sequence[Sequence[Iteration]],
    value: Callable[[Iteration], float],
    *,
    window: int = 1,
) -> list[tuple[float, float]]:
    """(iteration, median over the repetitions of the mean of the last `window` values)."""
    lines = [[value(each) for each in iterations] for iterations in repetitions]
    return [
        (
            float(place + 1),
            median(fmean(line[max(0, place + 1 - window) : place + 1]) for line in lines),
        )
        for place in range(min(map(len, lines)))
    ]


def total_line(repetitions: Sequence[Sequence[Iteration]]) -> list[tuple[float, float]]:
    """(iteration, median of the seconds up to it)."""
    lines: list[list[float]] = []
    for iterations in repetitions:
        seconds, line = 0.0, list[float]()
        for each in iterations:
            seconds += each.seconds
            line.append(seconds)
        lines.append(line)
    return [
        (float(place + 1), median(line[place] for line in lines))
        for place in range(min(map(len, lines)))
    ]


def _figures(
    name: str, repetitions: Sequence[Sequence[Iteration]], base_seconds: Sequence[float]
) -> ArmFigures:
    def each(value: Callable[[Sequence[Iteration]], float]) -> Spread:
        return over_repetitions([value(iterations) for iterations in repetitions])

    def share_of(value: Callable[[Iteration], float]) -> Spread:
        return each(
            lambda iterations: (
                sum(map(value, iterations)) / max(1, sum(one.bytes_ingested for one in iterations))
            )
        )

    ratios = [
        total(mine) / base for mine, base in zip(repetitions, base_seconds, strict=False) if base
    ]
    return ArmFigures(
        arm=name,
        seconds=each(total),
        ratio=over_repetitions(ratios) if ratios else None,
        files_deviation=each(lambda iterations: pstdev(one.files for one in iterations)),
        compacted_share=share_of(lambda one: one.bytes_compacted),
    )
