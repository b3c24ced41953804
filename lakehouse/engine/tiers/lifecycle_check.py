"""Reads what the check `lifecycle` needs: the bucket's rules, tags, and unfinished uploads."""

import contextlib
from collections.abc import Callable

from lakehouse.core.check_result import CheckResult
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.commits import ARCHIVE_APP_ID
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.inventory.classify import OtherUses
from lakehouse.core.tiers.lifecycle_check import OpenUpload, assess_lifecycle, unknown_lifecycle
from lakehouse.core.tiers.lifecycle_rules import LiveObjects
from lakehouse.core.tiers.plan import READ_AT_ONCE
from lakehouse.engine.delta_log.missing_data_files import live_sizes
from lakehouse.engine.lake import Lake
from lakehouse.engine.store.s3_objects import open_uploads, read_lifecycle, s3_place
from lakehouse.engine.tiers.tagged_files import tagged_yet_needed, tier_records
from lakehouse.engine.vacuum.lake_facts import LakeFacts


def check_lifecycle(lake: Lake, table: Table, snapshot: Snapshot, *, now_ms: int) -> CheckResult:
    """Checks that the rules of the table's bucket spare the files that the table needs.

    If the rules, the tags, or another table's log cannot be read, the check fails.
    """
    place = s3_place(lake.store, snapshot.table)
    assert place is not None  # the check exists only for tables on S3
    store, folder = place
    try:
        lifecycle = read_lifecycle(store)
        sizes = live_sizes(snapshot)
        is_borrowed = _is_borrowed(lake, table)
        tagged = tagged_yet_needed(
            lake.store, table.key, lambda name: name in sizes or is_borrowed(name)
        )
    except Refused as refused:
        return unknown_lifecycle(snapshot.table, str(refused))
    uploads: list[OpenUpload] | None = None
    with contextlib.suppress(Refused):
        uploads = open_uploads(store, folder)
    has_archive = ARCHIVE_APP_ID in snapshot.transactions and snapshot.table not in lake.elsewhere
    live = LiveObjects(
        table=snapshot.table,
        folder=f"{store.prefix}{folder}/",
        # The size of a file that only another table needs is unknown (`None`).
        sizes={**dict.fromkeys(tagged), **sizes},
        tagged=tagged,
        archive=f"{store.prefix}archive/{snapshot.table}/" if has_archive else "",
    )
    return assess_lifecycle(lifecycle, live, uploads, now_ms=now_ms)


def _is_borrowed(lake: Lake, table: Table) -> Callable[[str], bool]:
    """Returns a function that decides whether another table may borrow a file.

    If every tag was for a class whose objects can be read without a restore, no log is read and the
    answer is no: a borrowed file stays readable.

    Raises:
        Refused: another table's log cannot be read.
    """
    records = tier_records(lake.store, table.key)
    if all(record.storage_class in READ_AT_ONCE for record in records):
        return lambda _: False
    lake_facts = LakeFacts(lake, [table])
    lake_facts.read(table)
    log = lake_facts.log(table.key)
    if log is None:
        return lambda _: False
    uses = OtherUses(borrowed=lake_facts.borrowed, unplaced=lake_facts.unplaced)
    return lambda name: uses.may_read(log.table_files, name)
