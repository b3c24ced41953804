"""What the write of a table, or a command on its quarantine, did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.ingest.batches import Ledger, SetAside
from lakehouse.core.reasons import Explained
from lakehouse.core.text import count_of, first_names

if TYPE_CHECKING:
    from lakehouse.core.scheduling.strategy_selection import StrategyChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome(Explained):
    """One run of a table's write; `facts` is the table after it.

    `rows_superseded` are changes without effect, since a newer one was known. `rows_rescued` have
    fields in `_rescued`. `properties_left` were set by a person, against the declared strategy.
    """

    table: str
    rows_written: int = 0
    rows_quarantined: int = 0
    rows_superseded: int = 0
    rows_rescued: int = 0
    columns_added: tuple[str, ...] = ()
    files_read: int = 0
    set_aside: tuple[SetAside, ...] = ()
    seconds: float = 0.0
    strategy: "StrategyChoice | None" = None
    properties_left: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: TableFacts | None = None


def quarantine_sentence(table_key: str, *, lines: int, files: int = 0) -> str:
    """`3 lines and 1 file in quarantine: lakehouse quarantine show bronze/orders`, or empty."""
    counts = [count_of(lines, "line")] if lines else []
    counts += [count_of(files, "file")] if files else []
    if not counts:
        return ""
    return f"{' and '.join(counts)} in quarantine: lakehouse quarantine show {table_key}"


def describe_set_aside(ledger: Ledger, landing: Landing) -> str | None:
    """How many files no batch took, and which, foreign names first. `None` if there are none."""
    aside = {path: known for path, known in ledger.seen.items() if not known.is_taken}
    foreign = [path for path, known in aside.items() if known.is_foreign]
    others = [path for path, known in aside.items() if not known.is_foreign]
    sentences = list[str]()
    if foreign:
        endings = ", ".join(landing.suffixes)
        count = count_of(len(foreign), "file")
        sentences.append(
            f"{count} set aside, since the name ends in none of {endings}: {first_names(foreign)}"
        )
    if others:
        count = count_of(len(others), "file")
        sentences.append(f"{count} set aside for other reasons: {first_names(others)}")
    return "; ".join(sentences) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineAccount:
    """How much a quarantine holds (`None` is unknown), and how much was settled and retried."""

    table: str
    rows: int | None
    settled: int
    retried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReview:
    """What a command on a quarantine did, or with `dry_run` would do.

    `lines` and `files` left the quarantine: to be loaded again, the lines from the new file
    `landed`, or because they were `settled`. `left` counts those that stay, by reason.
    """

    table: str
    dry_run: bool
    lines: int
    files: int
    settled: int = 0
    landed: str | None = None
    left: dict[str, int]

    @property
    def sentence(self) -> str:
        """What was done, or would be."""
        verb = "would be" if self.dry_run else "were"
        if self.settled:
            return f"{self.lines} line(s) and {self.files} file(s) {verb} settled"
        where = f" in {self.landed}" if self.landed else ""
        stay = "".join(f"; {count} stay: {why}" for why, count in self.left.items())
        return (
            f"{self.lines} line(s) {verb} landed again{where}, {self.files} file(s) {verb} "
            f"read again{stay}"
        )
