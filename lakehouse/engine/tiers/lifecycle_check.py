"""Reads what the check `lifecycle` needs: the bucket's rules, tags, and unfinished uploads."""

import contextlib

from lakehouse.core.archive.records import APP_ID
from lakehouse.core.checks import CheckResult
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.tiers.lifecycle_check import OpenUpload, assess_lifecycle, unknown_lifecycle
from lakehouse.core.tiers.lifecycle_rules import LiveObjects
from lakehouse.engine.archive.expire import folder_of
from lakehouse.engine.delta_log.missing_files import live_sizes
from lakehouse.engine.lake import Lake
from lakehouse.engine.store.s3_objects import open_uploads, read_lifecycle, s3_place
from lakehouse.engine.tiers.tagged_files import tagged_again_live


def check_lifecycle(lake: Lake, snapshot: Snapshot, *, now_ms: int) -> CheckResult:
    """Whether the rules of the table's bucket spare the files that the table needs."""
    place = s3_place(lake.store, snapshot.table)
    assert place is not None  # the check exists only for tables on S3
    store, folder = place
    try:
        lifecycle = read_lifecycle(store)
        sizes = live_sizes(snapshot)
        tagged = tagged_again_live(lake.store, snapshot.table, sizes)
    except Refused as refused:
        return unknown_lifecycle(snapshot.table, str(refused))
    uploads: list[OpenUpload] | None = None
    with contextlib.suppress(Refused):
        uploads = open_uploads(store, folder)
    has_archive = APP_ID in snapshot.transactions and snapshot.table not in lake.elsewhere
    live = LiveObjects(
        table=snapshot.table,
        folder=f"{store.prefix}{folder}/",
        sizes=sizes,
        tagged=tagged,
        archive=f"{store.prefix}{folder_of(snapshot.table)}/" if has_archive else "",
    )
    return assess_lifecycle(lifecycle, live, uploads, now_ms=now_ms)
