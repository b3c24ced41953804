"""What the write of a table really did."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.core.delta.table_facts import TableFacts
from lakehouse.core.ingest.batches import SetAside
from lakehouse.core.reasons import Explained
from lakehouse.core.scheduling.strategy_selection import StrategyChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOutcome(Explained):
    """One run of a table's write. `version_after` equals `version_before` where nothing was committed; `None` is no table.

    `properties_left` are those that the strategy would set otherwise, with the values that a person gave them. `facts` is the table as its
    log had it at `version_after`. Of landed change data, `rows_superseded` are changes that took no effect, since a newer one was known.
    """

    table: str
    version_before: int | None
    version_after: int | None
    rows_written: int = 0
    rows_quarantined: int = 0
    rows_superseded: int = 0
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
