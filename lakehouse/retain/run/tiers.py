"""Tags a table's removed files for a lifecycle rule, and untags files that are needed again.

1. The plan is made from the table's log, as for a vacuum.
2. The names of the plan are added to the record in `_lakehouse/records` before any tag is set.
3. Tagged files that are live again, or that another table reads, lose the tag.
4. The planned files get the tag.
5. The record then names all files that may still carry the tag.

**Safety properties** (tests in `retain/run/test_tiers.py`)
- A file with the tag is in a record. So the check `lifecycle` and the next run find it after a kill
  and after a RESTORE. A name leaves the records without its tag, or when the log forgets the file.
- Our rule moves tagged files only where they are read without a restore. A file that comes back
  while it is tagged stays readable, and loses the tag in the next run.
"""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from itertools import chain

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Refused
from lakehouse.base.reasons import CheckResult
from lakehouse.declare.table import Table
from lakehouse.delta.commits import ARCHIVE_APP_ID
from lakehouse.delta.log.read_log import live_names
from lakehouse.delta.protocol import unknown_features
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake
from lakehouse.lake.lease import hold
from lakehouse.lake.state_tables import put_records, read_records
from lakehouse.retain.plan.tiers import (
    TIER_TAG,
    LiveObjects,
    TierPlan,
    assess_lifecycle,
    plan_tiers,
)
from lakehouse.store import at_once
from lakehouse.store.s3 import read_lifecycle, s3_place, set_tag
from lakehouse.vacuum.facts import LakeFacts, gather

_RECORDS = "tagged_files"


def run(lake_facts: LakeFacts, table: Table, *, dry_run: bool = False) -> TierPlan | None:
    """Tags and untags the files of the plan; returns the plan, or `None` if there is no table.

    A dry run changes nothing.

    Raises:
        Refused: the table is not on S3, or its retention or a table feature is unknown; otherwise
            as `gather`.
        Transient: another process holds the table.
    """
    lake = lake_facts.lake
    if not lake.on_s3(table.key):
        raise Refused(
            f"tiers of {table.key}: the table lies on a disk, which has no storage classes. Use a "
            "table on S3"
        )
    held = nullcontext() if dry_run else hold(lake, None, table.key, owner=f"tiers of {table.key}")
    with held:
        facts = gather(lake_facts, table)
        if facts is None:
            return None
        if unknown := unknown_features(facts.log.snapshot.features):
            raise Refused(
                f"tiers of {table.key}: this program does not know the table feature {unknown[0]}, "
                "and so not which files the table needs. Use a newer release of this program"
            )
        earlier = read_records(lake, _RECORDS, table.key)
        recorded = set(chain.from_iterable(earlier.values()))
        plan = plan_tiers(facts, recorded, now_ms=now_ms())
        if dry_run:
            return plan
        record = (table.key, "")
        if plan.tag:
            put_records(lake, _RECORDS, {record: sorted(recorded | {*plan.tag})})
        _set_tags(lake, table.key, plan.untag, is_tagged=False)
        _set_tags(lake, table.key, plan.tag, is_tagged=True)
        in_the_log = recorded & facts.table_files.removed.keys()
        remaining = (in_the_log | {*plan.tag}) - {*plan.untag}
        replaced = dict.fromkeys(earlier)
        put_records(lake, _RECORDS, {**replaced, record: sorted(remaining) or None})
    return plan


def _set_tags(lake: Lake, table_key: str, names: Sequence[str], *, is_tagged: bool) -> None:
    """Sets or removes the tag of those files that still exist."""
    place = s3_place(lake.store, table_key)
    assert place is not None
    store, folder = place
    [(key, value)] = TIER_TAG.items()

    def change(name: str) -> None:
        with suppress(FileNotFoundError):
            set_tag(store, f"{folder}/{name}", key, value if is_tagged else None)

    at_once(change, names)


def check_lifecycle(lake: Lake, snapshot: Snapshot) -> CheckResult:
    """Checks that the rules of a table's bucket spare the files that the table needs.

    If the rules cannot be read, the check fails.
    """
    table = snapshot.table
    place = s3_place(lake.store, table)
    assert place is not None  # the check exists only for tables on S3
    store, folder = place
    try:
        rules = read_lifecycle(store)
    except Refused as refused:
        sentence = f"it is unknown whether lifecycle rules spare the files of {table}: {refused}"
        return CheckResult(name="lifecycle", ok=False, sentence=sentence)
    has_archive = ARCHIVE_APP_ID in snapshot.transactions and table not in lake.elsewhere
    live = LiveObjects(
        table=table,
        folder=f"{store.prefix}{folder}/",
        names=live_names(snapshot),
        recorded=set(chain.from_iterable(read_records(lake, _RECORDS, table).values())),
        archive=f"{store.prefix}archive/{table}/" if has_archive else "",
    )
    return assess_lifecycle(rules, live)
