"""What the write of a table, or a person's word about its quarantine, really did."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.ingest.batches import SetAside
from lakehouse.core.reasons import Explained
from lakehouse.core.scheduling.strategy_selection import StrategyChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome(Explained):
    """One run of a table's write. `version_after` equals `version_before` where nothing was committed; `None` is no table.

    `properties_left` are those that the strategy would set otherwise, with the values that a person gave them. `facts` is the table as its
    log had it at `version_after`. Of landed change data, `rows_superseded` are changes that took no effect, since a newer one was known. Of
    landed files, `rows_rescued` have fields in `_rescued`, and `columns_added` came to the table.
    """

    table: str
    version_before: int | None
    version_after: int | None
    rows_written: int = 0
    rows_quarantined: int = 0
    rows_superseded: int = 0
    rows_rescued: int = 0
    columns_added: tuple[str, ...] = ()
    files_read: int = 0
    set_aside: tuple[SetAside, ...] = ()
    seconds: float = 0.0
    strategy: StrategyChoice | None = None
    properties_left: Mapping[str, str] = field(default_factory=dict[str, str])
    facts: TableFacts | None = None

    @property
    def committed(self) -> bool:
        """Whether the run added a version to the table."""
        return self.version_after != self.version_before


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineAccount:
    """The quarantine of one table as its log tells it: what is there (`None` is unknown), and what was settled and read again so far."""

    table: str
    rows: int | None
    settled: int
    retried: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReview:
    """What was done, or with `dry_run` would be: `lines` and `files` that were asked for, and `rows` that the table got.

    `settled` is what left the quarantine on a person's word. `left` are lines that are still none, or files that cannot be read again, by
    reason.
    """

    table: str
    dry_run: bool
    lines: int
    files: int
    rows: int = 0
    settled: int = 0
    left: dict[str, int]

    @property
    def sentence(self) -> str:
        """What was done, or would be."""
        verb = "would be" if self.dry_run else "were"
        if self.settled:
            return f"{self.lines} line(s) and {self.files} file(s) {verb} settled"
        stay = "".join(f"; {count} stay: {why}" for why, count in self.left.items())
        return f"{self.rows} of {self.lines} line(s) {verb} loaded, {self.files} file(s) {verb} read again{stay}"

    def as_json(self) -> dict[str, Any]:
        """The same for a program."""
        return {**asdict(self), "sentence": self.sentence}
