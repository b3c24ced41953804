"""An archive of one day: its plan and outcome, what it has, and what is restored and expires."""

from lakehouse import Append, Archive, Landing, Table
from lakehouse.core.archive.contents import ArchiveContents, ArchivedPartition
from lakehouse.core.archive.expire import ExpireOutcome, ExpirePlan
from lakehouse.core.archive.outcome import ArchiveOutcome
from lakehouse.core.archive.plan import ArchiveFacts, plan_archive
from lakehouse.core.archive.records import ArchivedFile
from lakehouse.core.archive.restore_plan import RestoreOutcome, RestorePlan
from lakehouse.core.delta.snapshot import Column
from lakehouse_tests.core.example_snapshots import data_file, snapshot

DAY_MS = 86_400_000
DAY = (("day", "2013-01-01"),)
DAYS = Table(
    key="bronze/days",
    source=Landing(prefix="landing/days/", format="json", schema="id BIGINT, day DATE"),
    write=Append(partition_by=("day",)),
    archive=Archive(older_than_days=31),
)
NAME = "archive/bronze/days/day=2013-01-01/a"
FILE = ArchivedFile(source="day=2013-01-01/a", archived=NAME, size_bytes=10, row_count=100)
PARTITION = ArchivedPartition(
    number=1,
    created_ms=0,
    storage_class="STANDARD",
    partition=DAY,
    start_ms=0,
    end_ms=DAY_MS,
    files=(FILE,),
)
CONTENTS = ArchiveContents(partitions=(PARTITION,), last_number=1)


def example_move() -> ArchiveOutcome:
    """One day of 100 rows moves."""
    columns = [Column(name="id", type="bigint"), Column(name="day", type="date")]
    layout = snapshot(
        [data_file(10, FILE.source, partition=DAY)], columns=columns, partition_columns=["day"]
    )
    facts = ArchiveFacts(snapshot=layout, contents=ArchiveContents())
    plan = plan_archive(DAYS, facts, now_ms=20_000 * DAY_MS)
    return ArchiveOutcome(plan=plan, version_after=8, requests={"CopyObject": 1})


def example_restore() -> RestoreOutcome:
    """The day comes back."""
    plan = RestorePlan(table=DAYS.key, version=8, target="", partitions=(PARTITION,), stays_days=31)
    return RestoreOutcome(plan=plan, version_after=9, seconds=1.5)


def example_expire() -> ExpireOutcome:
    """The day's time is over, and its file could not be deleted."""
    plan = ExpirePlan(
        table=DAYS.key, version=8, keep_days=183, expired=(PARTITION,), next_ms=DAY_MS
    )
    return ExpireOutcome(plan=plan, failed={NAME: "AccessDenied"})
