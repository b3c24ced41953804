"""Reconciles an inventory report with the logs of the tables in it, and of declared tables.

The logs are read after the report was made, as `reconcile` requires. Nothing is written, except
that `fresh_report` may scan the lake, and so write a report.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.inventory.objects import KnownObjects, StoredObject
from lakehouse.core.inventory.reconcile import KnownTables, Reconciliation, reconcile
from lakehouse.core.inventory.report_manifest import Report
from lakehouse.core.inventory.table_files import Owners, TableFiles, fold_table_files, table_roots
from lakehouse.engine.inventory.scan import scan
from lakehouse.engine.inventory.stored_reports import (
    SCAN,
    checksum_of,
    newest_report,
    read_keys,
    read_report,
    settled_ms,
    stamps_of,
)
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver, landing_prefixes
from lakehouse.engine.store import Store

# `fresh_report` does not scan again if our last report is newer than this, for example after a scan
# from the terminal, or if a run is repeated.
_SCAN_AGAIN_HOURS = 1.0

# The table that an object belongs to, or `None`.
TableOf = Callable[[StoredObject], str | None]
# Receives all rows of a report and a `TableOf`. Must yield every row again, unchanged.
RowObserver = Callable[[Iterator[StoredObject], TableOf], Iterable[StoredObject]]


def known_report(
    lake: Lake, *, now_ms: int, configuration: str | None = None, max_age_hours: float | None = None
) -> Report:
    """The newest complete report.

    Raises:
        Refused: there is no complete report, it is too old, or it cannot be trusted.
    """
    report = newest_report(
        lake.store, now_ms=now_ms, configuration=configuration, max_age_hours=max_age_hours
    )
    if report is None:
        of_configuration = "" if configuration is None else f" of configuration {configuration!r}"
        raise Refused(
            f"inventory of {lake.store.bucket}: there is no complete report{of_configuration} "
            "yet. Use lakehouse inventory scan to write one"
        )
    return report


def fresh_report(lake: Lake, *, now_ms: int, configuration: str | None = None) -> Report:
    """The newest complete report (of `configuration`, if given), after a scan if one is needed.

    A scan is needed if our newest own report is missing, refused or over an hour old. However,
    there is no scan if `configuration` is given and is not our own (`SCAN`), or if it is not given
    and the lake has a complete report of another configuration. Raises as `known_report`.
    """
    if configuration == SCAN or (configuration is None and _has_only_own_reports(lake.store)):
        recent = None
        with suppress(Refused):
            recent = newest_report(
                lake.store, now_ms=now_ms, configuration=SCAN, max_age_hours=_SCAN_AGAIN_HOURS
            )
        if recent is None:
            scan(lake.store, now_ms=now_ms)
    return known_report(lake, now_ms=now_ms, configuration=configuration)


def reconcile_report(
    lake: Lake,
    declared: Iterable[Table],
    report: Report,
    *,
    now_ms: int,
    observe: RowObserver | None = None,
) -> Reconciliation:
    """Compares a report with the logs of the tables in it, and of `declared` tables in the lake.

    `observe` sees all rows of the report.
    """
    tables = [*declared]
    keys = tables_to_read(lake, tables, report)
    known = read_table_files(lake, tables, keys, now_ms=now_ms)
    return reconcile_rows(lake, report, known, now_ms=now_ms, observe=observe)


def tables_to_read(lake: Lake, declared: Iterable[Table], report: Report) -> list[str]:
    """The keys of the tables whose logs a reconciliation needs.

    These are the tables in the report, and the declared tables in the lake.
    """
    store = lake.store
    names = (
        key.removeprefix(store.prefix)
        for key in read_keys(store, report, below=store.prefix)
        if key.startswith(store.prefix)
    )
    covered = {table.key for table in declared if table.key not in lake.elsewhere}
    return sorted(table_roots(names) | covered)


def reconcile_rows(
    lake: Lake,
    report: Report,
    known: KnownTables,
    *,
    now_ms: int,
    observe: RowObserver | None = None,
) -> Reconciliation:
    """Compares a report with tables whose logs were read after the report was made.

    `observe` sees all rows of the report.
    """
    store = lake.store
    owners = Owners([*(each.table for each in known.files), *known.unread])

    def table_of(each: StoredObject) -> str | None:
        if not each.key.startswith(store.prefix):
            return None
        return owners.table_of(each.key.removeprefix(store.prefix))

    rows = read_report(store, report)
    objects = rows if observe is None else observe(rows, table_of)
    in_storage = KnownObjects(objects=objects, settled_ms=settled_ms(report))
    return reconcile(known, in_storage, now_ms=now_ms)


def _has_only_own_reports(store: Store) -> bool:
    """Whether all complete reports of the lake are our own."""
    for configuration, stamp in stamps_of(store):
        if configuration != SCAN and checksum_of(store, configuration, stamp) is not None:
            return False
    return True


def read_table_files(
    lake: Lake, declared: Iterable[Table], keys: Iterable[str], *, now_ms: int
) -> KnownTables:
    """The files of each table in `keys`, or the reason why its log cannot be read.

    A table that does not exist is omitted.
    """
    table_files: list[TableFiles] = []
    unread: dict[str, str] = {}
    for table in keys:
        try:
            facts = lake.facts(table)
            if facts is not None:
                table_files.append(covered_files(lake, facts, now_ms=now_ms))
        except LakehouseError as error:
            unread[table] = str(error)
    own = [table for table in declared if table.key not in lake.elsewhere]
    return KnownTables(
        files=table_files,
        unread=unread,
        landed=landing_prefixes(lake, own),
        lake_prefix=lake.store.prefix,
    )


def covered_files(lake: Lake, facts: TableFacts, *, now_ms: int) -> TableFiles:
    """The files of a table in the lake."""
    # A report does not cover tables outside the lake, so paths to them are not resolved.
    resolve = PathResolver(replace(lake, elsewhere={}))
    commits = facts.history.commits
    return fold_table_files(facts.snapshot, resolve=resolve, commits=commits, now_ms=now_ms)
