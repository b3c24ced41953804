"""The cost of upkeep and readers together, under one schedule of compactions."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

from lakehouse.core.text import count_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The cost of upkeep and readers under one schedule; readers pay for each opening that a compaction would have spared them."""

    compaction_count: int
    upkeep_seconds: float
    upkeep_usd: float
    readers_seconds: float
    readers_usd: float

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.upkeep_seconds + self.readers_seconds

    @property
    def usd(self) -> float:
        """Both together; the best schedule is the one with the least of it."""
        return self.upkeep_usd + self.readers_usd

    @property
    def sentence(self) -> str:
        """The parts and their sum."""
        parts = f"{count_of(self.compaction_count, 'compaction')} {self.upkeep_seconds:.1f} s, readers {self.readers_seconds:.1f} s"
        return f"{parts}, together {self.usd:.6f} USD"

    def times(self, best: "Bill") -> float | None:
        """How many times the best this costs, in seconds where nothing costs money; `None` where the best costs nothing."""
        if self.usd or best.usd:
            return self.usd / best.usd if best.usd else None
        return self.seconds / best.seconds if best.seconds else None

    def as_json(self) -> dict[str, float]:
        """The documented shape."""
        told = {**asdict(self), "seconds": self.seconds, "usd": self.usd}
        return {name: round(figure, 9 if name.endswith("usd") else 3) for name, figure in told.items()}


def sum_of(bills: Iterable[Bill]) -> Bill:
    """The cost of several tables together."""
    told = [asdict(bill) for bill in bills]
    return Bill(**{part.name: sum(each[part.name] for each in told) for part in fields(Bill)})


def bill_document(bills: tuple[Bill, Bill] | None) -> dict[str, Any] | None:
    """The documented shape of the real bill and the best one; `None` where nobody tells how often a table is read."""
    return {"really": bills[0].as_json(), "best": bills[1].as_json()} if bills else None
