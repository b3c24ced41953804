"""Figures: measured numbers with their goals, comparisons and repetitions."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isnan, log, nan
from statistics import linear_regression, median
from threading import Event, Thread
from typing import Any

# Cost grows no faster than the number of things that it is for, but for this much.
MOST_EXPONENT = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number.

    `row` names the promise that the figure is held against (see `rows.py`). `peers` are measured in
    the same run, in the same unit. `samples` are the repetitions behind `value`; `points` are
    (size, value) pairs, where the value is how it grows with `size_of`. A figure that
    `holds_at_any_size` is also judged in smoke runs, because it measures correctness, not speed.
    """

    name: str
    value: float
    unit: str = ""
    row: str = ""
    at_most: float | None = None
    at_least: float | None = None
    peers: Mapping[str, float] = field(default_factory=dict)
    samples: Sequence[float] = ()
    points: Sequence[tuple[float, float]] = ()
    size_of: str = ""
    point_unit: str = ""
    holds_at_any_size: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; `None` without a goal."""
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    @property
    def goal(self) -> str:
        """The goal in words, or an empty text."""
        parts = [("at most", self.at_most), ("at least", self.at_least)]
        return ", ".join(
            f"{words} {number_text(bound, self.unit)}"
            for words, bound in parts
            if bound is not None
        )

    @property
    def sentence(self) -> str:
        """The figure as printed."""
        beside = [f"{name} {number_text(value, self.unit)}" for name, value in self.peers.items()]
        spread = [f"{spread_text(self)}"] if self.samples else []
        goal = [f"goal {self.goal}: {'met' if self.met else 'missed'}"] if self.goal else []
        notes = "; ".join([*beside, *spread, *goal])
        return f"{self.row:<4}{self.name}: {number_text(self.value, self.unit)}" + (
            f" ({notes})" if notes else ""
        )


def timed(step: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of `step`."""
    start = time.perf_counter()
    given = step()
    return time.perf_counter() - start, given


@contextmanager
def repeated(step: Callable[[], object], *, pause_seconds: float) -> Iterator[None]:
    """Repeats `step` in a thread during the block, with pauses, at least once."""
    is_over = Event()

    def run() -> None:
        while not is_over.is_set():
            step()
            is_over.wait(pause_seconds)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def middle(name: str, samples: Sequence[float], **more: object) -> Figure:
    """The median of repetitions."""
    return Figure(name=name, value=median(samples), samples=tuple(samples), **more)  # type: ignore[arg-type]


def ratio(name: str, above: Sequence[float], below: Sequence[float], **more: object) -> Figure:
    """The median of ratios of paired measurements, since pairs drift together."""
    return middle(
        name, [one / other for one, other in zip(above, below, strict=True)], unit="times", **more
    )


def growth(
    name: str,
    points: Sequence[tuple[float, float]],
    *,
    size_of: str,
    unit: str = "s",
    row: str = "P13",
) -> Figure:
    """The exponent of a cost that grows as a power of size, by least squares on logarithms.

    A fixed cost makes it smaller. With one size, as in smoke runs, it is not a number.
    """
    if len(points) < 2:
        return Figure(
            name=name, value=nan, row=row, points=tuple(points), size_of=size_of, point_unit=unit
        )
    slope = linear_regression(
        [log(size) for size, _ in points], [log(cost) for _, cost in points]
    ).slope
    return Figure(
        name=name,
        value=slope,
        row=row,
        at_most=MOST_EXPONENT,
        points=tuple(points),
        size_of=size_of,
        point_unit=unit,
    )


def spread_text(figure: Figure) -> str:
    """The smallest and the largest repetition, and their number."""
    low, high = (number_text(end(figure.samples), figure.unit) for end in (min, max))
    return f"{low} to {high}, {len(figure.samples)} runs"


def number_text(value: float, unit: str) -> str:
    """Three significant digits and the unit."""
    if isnan(value):
        return "unknown"
    size = abs(value)
    text = f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:#.3g}".rstrip(".")
    return f"{text} {unit}".rstrip()


def tell(figures: Sequence[Figure], *, smoke: bool = False) -> int:
    """Prints the figures; returns 1 if one misses its goal. Smoke runs judge `holds_at_any_size` only."""
    for figure in figures:
        print(figure.sentence, flush=True)
    return int(
        any(figure.met is False for figure in figures if figure.holds_at_any_size or not smoke)
    )


def alone(benchmark: Callable[..., Sequence[Figure]]) -> int:
    """Runs one benchmark with the numbers of the command line, without a record."""
    return tell(benchmark(*map(int, sys.argv[1:])))
