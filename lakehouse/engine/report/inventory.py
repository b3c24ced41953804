"""The newest inventory on the morning page: where the bytes are, and which files are missing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import TableFacts
from lakehouse.core.errors import LakehouseError
from lakehouse.core.inventory.objects import PART_GROUPS
from lakehouse.core.inventory.reconcile import Reconciliation, UsageShare
from lakehouse.core.inventory.report_manifest import Report
from lakehouse.core.inventory.table_files import TableFiles
from lakehouse.core.report.attention import (
    Attention,
    attention_to_inventory,
    attention_to_missing,
    attention_to_no_inventory,
)
from lakehouse.core.report.values import StoredBytes, StoredShare
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.inventory.reconcile_lake import (
    covered_files,
    known_report,
    read_table_files,
    reconcile_rows,
    tables_to_read,
)
from lakehouse.engine.inventory.stored_reports import hours_allowed
from lakehouse.engine.lake import Lake

_KIND_OF = {part: kind for kind, parts in PART_GROUPS.items() for part in parts}
# Shown instead of a storage class if the report does not name one, as for files on a disk.
_NO_CLASS = "not recorded"


class InventoryOfPage:
    """The newest report, and the files of tables whose logs are read for other parts of the page.

    The constructor looks up the report, because a reconciliation needs logs that were read after
    the report was made. `reconcile` stores its reconciliation in `reconciled`, by the report's
    name.
    """

    def __init__(self, lake: Lake, *, now_ms: int) -> None:
        self._lake = lake
        self._now_ms = now_ms
        self._files = dict[str, TableFiles]()
        self._absent = set[str]()
        self._problem = ""
        self._report: Report | None = None
        self.reconciled = dict[str, Reconciliation]()
        try:
            self._report = known_report(lake, now_ms=now_ms)
        except LakehouseError as error:
            self._problem = str(error)

    def take(self, key: str, facts: TableFacts | None) -> None:
        """Keeps the files of a table whose log was read, so that the log is not read again."""
        if facts is None:
            self._absent.add(key)
        elif self._report is not None and key not in self._lake.elsewhere:
            self._files[key] = covered_files(self._lake, facts, now_ms=self._now_ms)

    def reconcile(
        self, tables: Sequence[Table], unread: Mapping[str, str]
    ) -> tuple[StoredBytes, list[Attention]]:
        """The bytes by part, and what needs attention.

        `unread` maps each table whose log cannot be read to the reason.
        """
        report = self._report
        if report is None:
            return self._without_report(tables)
        try:
            reconciliation = self._compare(tables, report, unread)
            self.reconciled[report.name] = reconciliation
            allowed = hours_allowed(self._lake.store, report)
        except LakehouseError as error:
            self._problem = str(error)
            return self._without_report(tables)
        shares = _shares(reconciliation)
        stored = StoredBytes(report=report.name, created_ms=report.created_ms, shares=shares)
        attention = attention_to_inventory(
            report.name,
            created_ms=report.created_ms,
            allowed_hours=allowed,
            now_ms=self._now_ms,
        )
        for table in reconciliation.tables:
            attention += attention_to_missing(table.table, table.missing)
        return stored, attention

    def _compare(
        self, tables: Sequence[Table], report: Report, unread: Mapping[str, str]
    ) -> Reconciliation:
        lake = self._lake
        now_ms = self._now_ms
        known_keys = self._files.keys() | unread.keys() | self._absent
        keys = tables_to_read(lake, tables, report)
        other_keys = [key for key in keys if key not in known_keys]
        others = read_table_files(lake, tables, other_keys, now_ms=now_ms)
        covered = {key: why for key, why in unread.items() if key in keys}  # tables in the lake
        all_tables = replace(
            others,
            files=[*self._files.values(), *others.files],
            unread={**others.unread, **covered},
            least_billed_bytes=load_price_book(lake.settings).least_billed_bytes,
        )
        return reconcile_rows(lake, report, all_tables, now_ms=now_ms)

    def _without_report(self, tables: Iterable[Table]) -> tuple[StoredBytes, list[Attention]]:
        stored = StoredBytes(problem=self._problem)
        if all(table.key in self._lake.elsewhere for table in tables):
            return stored, []  # an inventory covers the lake only
        return stored, [attention_to_no_inventory(self._problem)]


def _shares(reconciliation: Reconciliation) -> tuple[StoredShare, ...]:
    """Files and bytes of the lake by part and storage class, the largest first."""
    sums = dict[tuple[str, str, str], list[int]]()
    of_tables = [share for table in reconciliation.tables for share in table.shares]
    for share in (*of_tables, *reconciliation.unclaimed):
        storage_class = share.storage_class or _NO_CLASS
        totals = sums.setdefault((*_part(share), storage_class), [0, 0])
        totals[0] += share.file_count
        totals[1] += share.size_bytes
    shares = [
        StoredShare(
            part=part,
            kind=kind,
            storage_class=storage_class,
            file_count=file_count,
            size_bytes=size_bytes,
        )
        for (part, kind, storage_class), (file_count, size_bytes) in sums.items()
    ]
    return tuple(sorted(shares, key=lambda each: -each.size_bytes))


def _part(share: UsageShare) -> tuple[str, str]:
    """The part of these objects, and its kind."""
    if share.part is not None:
        return share.part.value, _KIND_OF.get(share.part, "other")
    if share.folder.startswith("_lakehouse/"):
        return "journal, inventory reports and these pages", "other"
    if share.folder.startswith("landing/"):
        return "landed files", "other"
    return "outside all tables", "other"
