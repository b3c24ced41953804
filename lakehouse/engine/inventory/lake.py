"""A lake's newest report, reconciled with the log of every table that the report shows, declared or not.

Nothing is written. The logs are read after the report was made, as `reconcile` needs it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.inventory import Reconciliation, TableBooks, keep_books, reconcile, table_roots
from lakehouse.engine.inventory.report import Report, newest_report, read_keys, read_report
from lakehouse.engine.inventory.scan import SCAN
from lakehouse.engine.lake import Lake

# A clock may be off by so much, and a store round its times down; the listings of AWS are eventually consistent.
_SETTLED_MS, _SETTLED_ELSEWHERE_MS = 60_000, 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeReport:
    """A report and what it says together with the logs."""

    report: Report
    reconciliation: Reconciliation


def reconcile_lake(
    lake: Lake, declared: Iterable[str], *, now_ms: int, configuration: str | None = None, max_age_hours: float | None = None
) -> LakeReport:
    """The newest complete report of the lake's bucket, held against the logs; `declared` are table keys to look for in any case.

    Raises:
        Refused: there is no complete report, or it cannot be trusted.
    """
    store = lake.store
    report = newest_report(store, store.bucket, now_ms=now_ms, configuration=configuration, max_age_hours=max_age_hours)
    if report is None:
        raise Refused(f"inventory of {store.bucket}: there is no complete report yet; make one with: lakehouse inventory scan")
    names = (key.removeprefix(store.prefix) for key in read_keys(store, report) if key.startswith(store.prefix))
    books, unread = open_books(lake, sorted(table_roots(names) | set(declared)))
    reconciliation = reconcile(
        books,
        read_report(store, report),
        now_ms=now_ms,
        settled_ms=settled_ms(report),
        lake_prefix=store.prefix,
        unread=unread,
    )
    return LakeReport(report=report, reconciliation=reconciliation)


def settled_ms(report: Report) -> int:
    """What was written before this time is in the report, if it is in storage."""
    return report.manifest.created_ms - (_SETTLED_MS if report.configuration == SCAN else _SETTLED_ELSEWHERE_MS)


def open_books(lake: Lake, tables: Iterable[str]) -> tuple[list[TableBooks], dict[str, str]]:
    """The books of those tables that are there, and why those of the others cannot be read."""
    books: list[TableBooks] = []
    unread: dict[str, str] = {}
    for table in tables:
        try:
            facts = lake.facts(table)
            if facts is not None:
                books.append(keep_books(facts.layout, lake_uri=lake.settings.spark_root))
        except LakehouseError as error:
            unread[table] = str(error)
    return books, unread
