"""The facts from which the metrics of a lake are computed. `None` means unknown."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.metrics.totals import TableTotals
from lakehouse.core.scheduling.health import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """One table, or a quarantine or archive that cannot be read.

    - `is_readable`: whether the log and the journal could be read. If not, all other facts are
      unknown.
    - `exists`: whether the table has been written. A declared table may not exist yet.
    - `decision`: the name of the reason why the table would, or would not, be compacted now; empty
      if unknown.
    - `last_vacuum_ms`: when its newest vacuum began; `None` also if vacuums are not automatic.
    - `archived_bytes`: the size of its archive.
    - `other_bytes`: the known sizes of objects that the log does not list, by the value of the
      metric's label `part` (`families.BYTES`).
    - `operations`: the recent upkeep operations, oldest first.
    - `totals`: the sums over the upkeep operations since a week before the table's metrics were
      first read.
    - `budget_usd_per_month`: the declared budget.
    """

    table: str
    is_readable: bool
    exists: bool = False
    health: Health | None = None
    decision: str = ""
    last_compaction_ms: int | None = None
    last_vacuum_ms: int | None = None
    quarantined_rows: int | None = None
    archived_bytes: int | None = None
    other_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    operations: tuple[UpkeepOperation, ...] = ()
    totals: TableTotals | None = None
    is_paused: bool | None = None
    budget_usd_per_month: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DagsterRecords:
    """Dagster's own records: their size, the number of runs, and the newest result of each check.

    `checks` maps an asset (`bronze/weather`) and a check's name to whether the check passed.
    """

    size_bytes: int
    run_count: int | None = None
    checks: Mapping[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLake:
    """A lake at `read_ms`. Reading the facts took `seconds`. `version` is this program's.

    `sources` maps each source of facts about the whole lake to whether it could be read.
    """

    tables: tuple[MeasuredTable, ...]
    version: str
    read_ms: int
    seconds: float
    inventory_ms: int | None = None
    dagster: DagsterRecords | None = None
    sources: Mapping[str, bool] = field(default_factory=dict[str, bool])
