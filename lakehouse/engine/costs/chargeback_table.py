"""Brings `costs/chargeback` up to date: estimated charges by day, and allocated bills.

1. The table's lock is taken, and the table's rows of the last days are read.
2. Each day's charges are computed from current facts: storage from the day's newest inventory
   report, operations from logs and journal, open multipart uploads from S3.
3. One commit replaces the open days whose rows differ. For a closed day with a later report,
   another commit appends corrections.

A day is open until a run writes it after the day's end and can read all tables. The last days begin
a week ago or, if that is earlier, with the newest written day.

**Safety properties** (tests in `test_chargeback_table.py`)
- A run that is repeated, or killed and run again, leaves the same rows.
- Estimated rows of a closed day are never replaced. No day is closed while the operations of a
  table cannot be read. On an open day, recorded operations stay even if they can no longer be read.
- A day without a report is charged like the day before, and corrected when the day's report
  arrives. Without any earlier report, storage is not charged.
- A bill replaces only rows of the same file name, resource and days.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from lakehouse.core.costs.bill_allocation import allocated_rows
from lakehouse.core.costs.chargeback_columns import COLUMNS, LakeAccount, charge_of, estimated_row
from lakehouse.core.costs.charges import (
    Charge,
    carried,
    corrections,
    of_report,
    operation_charges,
    total_usd,
)
from lakehouse.core.costs.exact_amounts import day_of
from lakehouse.core.costs.operations import UpkeepOperation
from lakehouse.core.costs.storage_charges import (
    StoredDay,
    inventory_charge,
    storage_charges,
    upload_charges,
)
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.core.inventory.objects import OpenUpload
from lakehouse.core.inventory.reconcile import Reconciliation
from lakehouse.core.inventory.report_manifest import Report
from lakehouse.engine.costs.operations_table import (
    DAYS_BACK,
    CostsSession,
    CostsWritten,
    Row,
    operations_since,
    read_rows,
    replace_days,
    rows_by_day,
    write_rows,
)
from lakehouse.engine.costs.price_book import load_price_book
from lakehouse.engine.inventory.reconcile_lake import (
    read_table_files,
    reconcile_rows,
    tables_to_read,
)
from lakehouse.engine.inventory.stored_reports import SCAN, reports_by_day
from lakehouse.engine.lake import Lake
from lakehouse.engine.store.s3_objects import open_uploads, s3_place
from lakehouse.engine.table_lock import hold

CHARGEBACK = "costs/chargeback"


def write_chargeback(costs: CostsSession, *, now_ms: int) -> CostsWritten:
    """Writes the estimated charges of the last days, as far as they have changed.

    Raises:
        Refused: a report cannot be trusted.
        Transient: another process holds the table, or the server does not answer.
    """
    with hold(costs.lake, costs.spark, CHARGEBACK, owner=costs.owner):
        estimates = Estimates(costs.lake, costs.tables, now_ms=now_ms)
        stored_rows = read_charges(costs.lake, since=estimates.first)
        replacements = list[Row]()
        correction_rows = list[Row]()
        all_corrections = list[Charge]()
        previous = list[Charge]()
        for day, is_over in estimates.days:
            rows = stored_rows.get(day, [])
            recorded = [charge_of(row) for row in rows]
            if any(row["x_is_closed"] for row in rows):
                day_corrections = estimates.corrections_of(day, recorded)
                all_corrections += day_corrections
                correction_rows += estimates.rows(day_corrections, is_closed=True)
                previous = of_report(recorded) + day_corrections
                continue
            charges = estimates.of_day(day, recorded, previous)
            # After a day without storage charges, the last day that has some is carried on.
            previous = of_report(charges) or previous
            new_rows = estimates.rows(charges, is_closed=is_over and not estimates.unread)
            if _sorted_rows(new_rows) != _sorted_rows(rows):
                replacements += new_rows
        if replacements:
            replace_days(costs, CHARGEBACK, COLUMNS, replacements)
        if correction_rows:
            write_rows(costs, CHARGEBACK, COLUMNS, correction_rows)
    return CostsWritten(
        days=tuple(sorted({row["x_day"] for row in (*replacements, *correction_rows)})),
        row_count=len(replacements) + len(correction_rows),
        corrected_usd=total_usd(all_corrections),
        unread=estimates.unread,
    )


def write_allocated(costs: CostsSession, bill: Sequence[Mapping[str, Any]], *, name: str) -> int:
    """Splits the rows of a bill by stored bytes, and replaces earlier rows of the same bill.

    Rows of other bills, other resources or other days stay. Returns the number of rows written.

    Raises:
        Refused: no stored bytes are known for the period of a row.
    """
    with hold(costs.lake, costs.spark, CHARGEBACK, owner=costs.owner):
        estimated = read_charges(costs.lake, since=date.min)
        charges = [charge_of(row) for of_day in estimated.values() for row in of_day]
        rows = allocated_rows(bill, charges, bill=name)
        days = {row["x_day"] for row in rows}
        replaced = {(row["x_report"], row["ResourceId"]) for row in rows}
        kept = list[Row]()  # written again, because the commit replaces whole days
        for row in read_rows(costs.lake, CHARGEBACK, COLUMNS, since=min(days)):
            is_replaced = (row["x_report"], row["ResourceId"]) in replaced
            if row["x_mode"] == "allocated" and row["x_day"] in days and not is_replaced:
                kept.append(row)
        replace_days(costs, CHARGEBACK, COLUMNS, [*kept, *rows])
    return len(rows)


def read_charges(lake: Lake, *, since: date) -> dict[date, list[Row]]:
    """The estimated rows of `costs/chargeback` by day, read without Spark."""
    rows = read_rows(lake, CHARGEBACK, COLUMNS, since=since)
    return rows_by_day(row for row in rows if row["x_mode"] == "estimated")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFacts:
    """Facts that a caller has read: operations of the last days, and reconciled reports by name."""

    operations: Sequence[UpkeepOperation]
    reconciled: Mapping[str, Reconciliation]


class Estimates:
    """The charges of the last days, from current facts. A report is read only when needed.

    The `known` facts are not read again. `days` contains the days from `first` on, oldest first,
    each with a flag that shows whether the day is over. `unread` maps each table whose operations
    cannot be read to the reason.
    """

    def __init__(
        self,
        lake: Lake,
        tables: Mapping[str, Table],
        *,
        now_ms: int,
        known: KnownFacts | None = None,
    ) -> None:
        self._lake = lake
        self._tables = tables
        self._now_ms = now_ms
        today = day_of(now_ms)
        week_ago = today - timedelta(days=DAYS_BACK)
        self.first = min(week_ago, _last_day(lake) or week_ago)
        count = (today - self.first).days + 1
        days = [self.first + timedelta(days=number) for number in range(count)]
        self.days = [(day, day < today) for day in days]
        self._reports = reports_by_day(lake.store, since=self.first, now_ms=now_ms)
        self._book = load_price_book(lake.settings)
        self._is_on_s3 = lake.settings.on_s3
        self._uploads: Sequence[OpenUpload] | None = None
        self._reconciled: Mapping[str, Reconciliation] = {} if known is None else known.reconciled
        if known is None:
            operations, self.unread = operations_since(lake, tables, self.first)
        else:
            operations = known.operations
            self.unread = dict[str, str]()
        self._operations = dict[date, list[Charge]]()
        for charge in operation_charges(operations, tables, self._book):
            self._operations.setdefault(charge.day, []).append(charge)

    def of_day(
        self, day: date, recorded: Sequence[Charge], previous: Sequence[Charge]
    ) -> list[Charge]:
        """The charges of an open day.

        `previous` are the storage charges of the day before, or of the last day that has any.
        Without a report, storage is charged as in `previous`; if that is empty, as in `recorded`.
        Operations among the `recorded` charges stay even if they can no longer be read.
        """
        report = self._reports.get(day)
        storage = of_report(recorded)
        if report is None:
            storage = carried(previous, day) if previous else storage
        elif not storage or any(each.report != report.name for each in storage):
            storage = self._from_report(day)
        others = [*self._operations.get(day, [])]
        if storage:
            others += self._of_uploads(day)
        current_keys = {(each.table, each.part, each.sku) for each in others}
        unreadable = list[Charge]()
        for each in recorded:
            if not each.report and (each.table, each.part, each.sku) not in current_keys:
                unreadable.append(each)
        return [*storage, *unreadable, *others]

    def corrections_of(self, day: date, recorded: Sequence[Charge]) -> list[Charge]:
        """The corrections to a closed day's storage charges; empty unless it has a new report."""
        report = self._reports.get(day)
        storage = of_report(recorded)
        if report is None or any(each.report == report.name for each in storage):
            return []
        return corrections(storage, self._from_report(day))

    def rows(self, charges: Sequence[Charge], *, is_closed: bool) -> list[Row]:
        """The rows of charges."""
        account = LakeAccount(
            address=self._lake.settings.root,
            region=self._book.region,
            prices_as_of=self._book.as_of,
        )
        return [estimated_row(each, account, is_closed=is_closed) for each in charges]

    def _from_report(self, day: date) -> list[Charge]:
        report = self._reports[day]
        stored = StoredDay(
            day=day,
            report=report.name,
            reconciliation=self._reconciled.get(report.name) or self._reconcile(report),
            is_scan=report.configuration == SCAN,
        )
        charges = storage_charges(stored, self._tables, self._book)
        if not self._is_on_s3:
            return charges
        return [*charges, inventory_charge(stored, self._book)]

    def _of_uploads(self, day: date) -> list[Charge]:
        """The charges for open multipart uploads that began on this day or earlier.

        Uploads that cannot be listed, or whose size is unknown, are not charged.
        """
        if self._uploads is None:
            self._uploads = ()
            place = s3_place(self._lake.store, "")
            if place is not None:
                with suppress(Refused):
                    self._uploads = open_uploads(place[0])
        sizes = dict[str, int]()
        for upload in self._uploads:
            if day_of(upload.started_ms) <= day and upload.size_bytes:
                name = upload.key.removeprefix(self._lake.store.prefix)
                table = "/".join(name.split("/")[:2])
                if table not in self._tables:
                    table = ""
                sizes[table] = sizes.get(table, 0) + upload.size_bytes
        return upload_charges(sizes, day, self._tables, self._book)

    def _reconcile(self, report: Report) -> Reconciliation:
        lake = self._lake
        tables = self._tables.values()
        keys = tables_to_read(lake, tables, report)
        table_files = read_table_files(lake, tables, keys, now_ms=self._now_ms)
        table_files = replace(table_files, least_billed_bytes=self._book.least_billed_bytes)
        return reconcile_rows(lake, report, table_files, now_ms=self._now_ms)


def _last_day(lake: Lake) -> date | None:
    """The newest day with estimated rows in `costs/chargeback`, or `None`."""
    facts = lake.facts(CHARGEBACK)
    partitions = [dict(file.partition) for file in facts.snapshot.files] if facts else []
    days = [each["x_day"] or "" for each in partitions if each["x_mode"] == "estimated"]
    return date.fromisoformat(max(days)) if days else None


def _sorted_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows in an order that does not depend on how they were stored."""
    return sorted(
        rows, key=lambda row: (row["x_table"], row["x_kind"], row["x_part"], row["SkuId"])
    )
