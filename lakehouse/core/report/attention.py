"""Decides what `lakehouse report` lists as needing attention, in which order, and what helps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.undeclared_tables import undeclared_sentence
from lakehouse.core.journal_records import Pause
from lakehouse.core.reasons import Reason
from lakehouse.core.report.values import ReportedTable
from lakehouse.core.text import count_of, first_names, size_text, utc_text
from lakehouse.core.units import HOUR_MS

# Removed files are overdue this long after the end of their retention. Vacuums follow the nightly
# inventory, so by then at least one nightly vacuum was missed.
LATE_VACUUM_MS = 48 * HOUR_MS
# Failures of these checks are not listed, because the page shows newer facts of the same kind.
_ON_PAGE = frozenset({"breaker", "quarantine", "fresh", "missing", "deleted", "budget"})
_UPKEEP = ("compaction", "vacuum", "archive", "ttl")
_OF_LAKE = ("inventory/", "costs/")
_STOPPED = frozenset(each.name for each in (Reason.BREAKER_OPEN, Reason.REWRITE_LOOP))


class Concern(Enum):
    """The kinds of problems, the most urgent first. A member's value is its heading on the page."""

    UNREADABLE = "What cannot be read"
    MISSING_FILES = "Files that a table needs, but that are gone"
    OVER_BUDGET = "Over budget"
    FAILED_CHECK = "Failed checks"
    ARCHIVE = "Archives with an interrupted operation"
    BREAKER = "Compactions stopped by a breaker"
    QUARANTINE = "Rejected records"
    VACUUM_LATE = "Vacuums that are late"
    INVENTORY_LATE = "Inventory that is late"
    FAILED_DELETION = "Files that a vacuum could not delete"
    UNDECLARED = "Tables that no declaration names"
    PAUSED = "Paused by a person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A problem that needs attention, and the command that helps.

    `table` is empty if the problem concerns the whole lake.
    """

    concern: Concern
    sentence: str
    command: str = ""
    table: str = ""


def attention_to_table(
    table: ReportedTable, pause: Pause | None, *, now_ms: int
) -> list[Attention]:
    """What needs attention at one table. If it cannot be read, only this is listed."""
    key = table.table
    if table.problem:
        return [
            Attention(
                concern=Concern.UNREADABLE,
                table=key,
                sentence=table.problem,
                command=f"lakehouse health {key}",
            )
        ]
    items = list[Attention]()
    if table.reason in _STOPPED:
        items.append(
            Attention(
                concern=Concern.BREAKER,
                table=key,
                sentence=table.decision,
                command=f"lakehouse history {key} --compactions",
            )
        )
    if table.quarantined_rows:
        items.append(
            Attention(
                concern=Concern.QUARANTINE,
                table=key,
                sentence=f"{count_of(table.quarantined_rows, 'record')} in quarantine. Look at "
                "them, then retry or settle them",
                command=f"lakehouse quarantine show {key}",
            )
        )
    if table.overdue_bytes:
        last = "never" if table.last_vacuum_ms is None else utc_text(table.last_vacuum_ms)
        items.append(
            Attention(
                concern=Concern.VACUUM_LATE,
                table=key,
                sentence=f"{size_text(table.overdue_bytes)} should have been deleted by now; last "
                f"vacuum: {last}",
                command=f"lakehouse vacuum {key} --dry-run",
            )
        )
    if pause is not None and pause.holds(now_ms):
        items.append(
            Attention(
                concern=Concern.PAUSED,
                table=key,
                sentence=pause.explanation.sentence,
                command=f"lakehouse resume {key}",
            )
        )
    return items


def attention_to_no_inventory(problem: str) -> Attention:
    """What needs attention if there is no inventory; `problem` is the reason."""
    return Attention(
        concern=Concern.INVENTORY_LATE, sentence=problem, command="lakehouse inventory scan"
    )


def attention_to_inventory(
    report: str, *, created_ms: int, allowed_hours: float, now_ms: int
) -> list[Attention]:
    """What needs attention if the newest inventory is older than `allowed_hours`."""
    hours = (now_ms - created_ms) / HOUR_MS
    if hours <= allowed_hours:
        return []
    sentence = (
        f"report {report} is {hours:.0f} h old (limit {allowed_hours:g} h), so vacuums list the "
        "storage themselves or wait"
    )
    return [
        Attention(
            concern=Concern.INVENTORY_LATE, sentence=sentence, command="lakehouse inventory load"
        )
    ]


def attention_to_missing(table: str, missing: Sequence[str]) -> list[Attention]:
    """What needs attention if files of a table's newest version are not in the inventory."""
    if not missing:
        return []
    sentence = (
        f"{count_of(len(missing), 'live file')} not in storage: {first_names(missing)}. Restore "
        "them from a backup"
    )
    return [
        Attention(
            concern=Concern.MISSING_FILES,
            table=table,
            sentence=sentence,
            command=f"lakehouse inventory report {table}",
        )
    ]


def attention_to_deletions(table: str, failed: Mapping[str, str]) -> list[Attention]:
    """What needs attention if the newest vacuum could not delete all files of its plan."""
    if not failed:
        return []
    name, why = next(iter(failed.items()))
    return [
        Attention(
            concern=Concern.FAILED_DELETION,
            table=table,
            sentence=f"{count_of(len(failed), 'file')} could not be deleted, for example {name}: "
            f"{why}",
            command=f"lakehouse vacuum {table}",
        )
    ]


def attention_to_checks(
    failed: Iterable[tuple[str, str]], declared: Iterable[Table]
) -> list[Attention]:
    """The failed checks of the declared tables and of the lake, except those in `_ON_PAGE`.

    `failed` contains the asset and the name of each check that failed according to Dagster's
    records. Checks of other assets are ignored.
    """
    keys = {_asset_of(table): table.key for table in declared}
    of_upkeep = {f"{kind}/{key}": key for key in keys.values() for kind in _UPKEEP}
    items = list[Attention]()
    for asset, check in sorted(failed):
        key = keys.get(asset) or of_upkeep.get(asset, "")
        if check in _ON_PAGE or not (key or asset.startswith(_OF_LAKE)):
            continue
        command = f"lakehouse health {key} --verbose" if key else ""
        if check == "declaration":
            command = f"lakehouse evolve plan {key}"
        items.append(
            Attention(
                concern=Concern.FAILED_CHECK,
                table=key,
                sentence=f"the last run of check {check} of {asset} failed; the asset's page in "
                "Dagster shows why",
                command=command,
            )
        )
    return items


def _asset_of(table: Table) -> str:
    """The name of the asset that has the table's checks."""
    if isinstance(table.write, Adopted) and table.write.asset_key:
        return "/".join(table.write.asset_key)
    return table.key


def attention_to_undeclared(keys: Sequence[str]) -> list[Attention]:
    """What needs attention if tables in the lake are not declared."""
    if not keys:
        return []
    return [Attention(concern=Concern.UNDECLARED, sentence=undeclared_sentence(keys))]
