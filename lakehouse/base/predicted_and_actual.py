"""Predicted and actual figures as one table, for the terminal, the report page and JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lakehouse.base.text import size_text, usd_text

FIGURE_HEADS = ("figure", "predicted", "actual", "error")


@dataclass(frozen=True, slots=True)
class Figure:
    """A predicted figure and its measured value; `None` means unknown."""

    name: str
    predicted: float | None
    actual: float | None

    @property
    def error(self) -> float | None:
        """The error as a share of `actual`; `None` if a figure is unknown or `actual` is 0."""
        if self.predicted is None or self.actual is None:
            return None
        return share_off(abs(self.predicted - self.actual), self.actual)

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """The figure as a table row, in the order of `FIGURE_HEADS`."""
        error = "-" if self.error is None else f"{self.error:.1%}"
        return (
            self.name.replace("_", " ").replace("usd", "USD"),
            self._text(self.predicted),
            self._text(self.actual),
            error,
        )

    def _text(self, number: float | None) -> str:
        if number is None:
            return "-"
        if "bytes" in self.name:
            return size_text(int(number))
        if self.name == "seconds":
            return f"{number:.2f}"
        if self.name == "usd":
            return usd_text(number)
        return f"{number:,}"


def share_off(error: float, actual: float) -> float | None:
    """An error as a share of the actual figure; `None` if that is 0."""
    return error / actual if actual else None


def figures_as_json(figures: Iterable[Figure]) -> dict[str, dict[str, float | None]]:
    """The documented JSON shape: the figures by name."""
    return {
        each.name: {
            "predicted": each.predicted,
            "actual": each.actual,
            "error": None if each.error is None else round(each.error, 4),
        }
        for each in figures
    }


def figures_in(document: Mapping[str, Any]) -> list[Figure]:
    """The figures in an outcome's JSON document; empty if it has none."""
    return [
        Figure(name, figure["predicted"], figure["actual"])
        for name, figure in document.get("figures", {}).items()
    ]
