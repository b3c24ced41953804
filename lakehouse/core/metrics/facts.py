"""The facts from which the metrics of a lake are made. `None` means unknown."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.metrics.totals import TableTotals
from lakehouse.core.scheduling.health import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """One table. All facts but `is_readable` are unknown if it cannot be read.

    - `is_readable`: whether its log and journal could be read.
    - `exists`: whether there is a table; a declared table may not have been written yet.
    - `decision`: the name of the reason why it would, or would not, be compacted now.
    - `last_vacuum_ms`: when its newest vacuum began.
    - `archived_bytes`: the size of its archive.
    - `other_bytes`: the bytes of the parts that its log does not have, as far as they are known.
    - `operations`: its upkeep that ended within the last days, oldest first.
    - `totals`: the totals of its upkeep.
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

    `checks` maps the asset, like `bronze/weather`, and the check's name to whether it passed.
    """

    size_bytes: int
    run_count: int | None = None
    checks: Mapping[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLake:
    """A lake at one time.

    `sources` names each source of facts about the whole lake, and whether it could be read.
    """

    tables: tuple[MeasuredTable, ...]
    version: str
    read_ms: int
    seconds: float
    inventory_ms: int | None = None
    dagster: DagsterRecords | None = None
    sources: Mapping[str, bool] = field(default_factory=dict[str, bool])
