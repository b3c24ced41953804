"""A lake's report, reconciled with the log of every table that the report shows, declared or not.

The logs are read after the report was made, as `reconcile` needs it. Nothing is written, but for a scan where there is no other report.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.inventory.reconcile import reconcile
from lakehouse.core.inventory.table_files import TableFiles, fold_table_files
from lakehouse.core.inventory.table_folders import Owners, table_roots
from lakehouse.core.inventory.usage import Reconciliation
from lakehouse.engine.inventory.log_locations import Places, landing_places
from lakehouse.engine.inventory.scan import SCAN, scan
from lakehouse.engine.inventory.stored_reports import Report, checksum_of, newest_report, read_keys, read_report, stamps_of
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store

# A clock may be off by so much, and a store round its times down; the listings of AWS are eventually consistent.
SETTLED_MS, _SETTLED_ELSEWHERE_MS = 60_000, 3_600_000
# A run that repeats another, or follows a scan from the terminal, needs no second listing.
SCAN_AGAIN_HOURS = 1.0

type_of_owner = Callable[[StoredObject], str | None]
type_of_through = Callable[[Iterator[StoredObject], type_of_owner], Iterable[StoredObject]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeReport:
    """A report and what it says together with the logs."""

    report: Report
    reconciliation: Reconciliation


def makes_its_own(store: Store) -> bool:
    """Whether nobody else lists this lake: it lies on a disk, or in a bucket for which no report but our own was delivered so far."""
    others = (each for each in stamps_of(store, store.bucket) if each[0] != SCAN)
    return all(checksum_of(store, store.bucket, *each) is None for each in others)


def fresh_report(lake: Lake, *, now_ms: int, configuration: str | None = None) -> Report:
    """The newest complete report; a new one of our own, unless it is an hour old, where the lake makes its own or that is asked for.

    Raises:
        Refused: the newest report cannot be trusted, or there is none of `configuration`.
    """
    store = lake.store
    ours = configuration == SCAN or (configuration is None and makes_its_own(store))
    if ours and not _has_young_scan(store, now_ms=now_ms):
        scan(store, now_ms=now_ms)
    return known_report(lake, now_ms=now_ms, configuration=configuration)


def known_report(lake: Lake, *, now_ms: int, configuration: str | None = None, max_age_hours: float | None = None) -> Report:
    """The newest complete report that is there, of one `configuration` or of all.

    Raises:
        Refused: there is none, or it cannot be trusted, or it is older than `max_age_hours`.
    """
    store = lake.store
    report = newest_report(store, store.bucket, now_ms=now_ms, configuration=configuration, max_age_hours=max_age_hours)
    if report is None:
        of_it = "" if configuration is None else f" of configuration {configuration!r}"
        raise Refused(f"inventory of {store.bucket}: there is no complete report{of_it} yet; make one with: lakehouse inventory scan")
    return report


def reconcile_lake(
    lake: Lake, declared: Iterable[Table], *, now_ms: int, configuration: str | None = None, max_age_hours: float | None = None
) -> LakeReport:
    """The newest complete report of the lake's bucket, held against the logs; `declared` are tables to look for in any case.

    Raises:
        Refused: there is no complete report, or it cannot be trusted.
    """
    report = known_report(lake, now_ms=now_ms, configuration=configuration, max_age_hours=max_age_hours)
    return LakeReport(report=report, reconciliation=reconcile_report(lake, declared, report, now_ms=now_ms))


def reconcile_report(
    lake: Lake, declared: Iterable[Table], report: Report, *, now_ms: int, through: type_of_through | None = None
) -> Reconciliation:
    """One report held against the logs. `through` gets every row and the way to its table, and gives the rows on.

    Raises:
        Refused: the report cannot be trusted.
    """
    store, tables = lake.store, [table for table in declared if table.key not in lake.elsewhere]
    names = (key.removeprefix(store.prefix) for key in read_keys(store, report) if key.startswith(store.prefix))
    table_files, unread = read_table_files(lake, sorted(table_roots(names) | {table.key for table in tables}), now_ms=now_ms)
    owners = Owners([*(each.table for each in table_files), *unread])

    def owner(each: StoredObject) -> str | None:
        return owners.table_of(each.key.removeprefix(store.prefix)) if each.key.startswith(store.prefix) else None

    rows = read_report(store, report)
    return reconcile(
        table_files,
        rows if through is None else through(rows, owner),
        now_ms=now_ms,
        settled_ms=settled_ms(report),
        lake_prefix=store.prefix,
        unread=unread,
        landed=landing_places(lake, tables),
    )


def _has_young_scan(store: Store, *, now_ms: int) -> bool:
    try:
        return newest_report(store, store.bucket, now_ms=now_ms, configuration=SCAN, max_age_hours=SCAN_AGAIN_HOURS) is not None
    except Refused:
        return False


def settled_ms(report: Report) -> int:
    """What was written before this time is in the report, if it is in storage."""
    return report.manifest.created_ms - (SETTLED_MS if report.configuration == SCAN else _SETTLED_ELSEWHERE_MS)


def read_table_files(lake: Lake, tables: Iterable[str], *, now_ms: int) -> tuple[list[TableFiles], dict[str, str]]:
    """The books of those tables that are there, and why those of the others cannot be read."""
    table_files: list[TableFiles] = []
    unread: dict[str, str] = {}
    places = Places(replace(lake, elsewhere={}))  # the report shows nothing of tables that lie outside the lake
    for table in tables:
        try:
            facts = lake.facts(table)
            if facts is not None:
                table_files.append(fold_table_files(facts.snapshot, place=places, commits=facts.history.commits, now_ms=now_ms))
        except LakehouseError as error:
            unread[table] = str(error)
    return table_files, unread
