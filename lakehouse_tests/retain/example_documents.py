"""An archive of one day and a TTL of one file: their plans and outcomes."""

from dataclasses import replace

from lakehouse.base.operation import Figure
from lakehouse.declare.policies import Archive, Ttl
from lakehouse.declare.table import Adopted, Table
from lakehouse.delta.snapshot import Column
from lakehouse.retain.plan.archive import ArchiveFacts, plan_archive, plan_restore
from lakehouse.retain.plan.ttl import TimeBounds, plan_ttl
from lakehouse.retain.run.archive import RetentionOutcome
from lakehouse_tests.retain import example_days
from lakehouse_tests.support.example_snapshots import data_file, snapshot

DAY_MS = 86_400_000
FIGURES = (Figure("rows", 99, 98), Figure("seconds", 1.0, 1.5))
DAYS = replace(example_days.DAYS, archive=Archive(older_than_days=31))
COLUMNS = [Column(name="id", type="bigint"), Column(name="day", type="date")]


def example_facts() -> ArchiveFacts:
    """A table of two days, whose archive has an earlier one."""
    [table, archived] = [
        snapshot(
            [data_file(10, f"day={day}/a", partition=(("day", day),)) for day in days],
            columns=COLUMNS,
            partition_columns=["day"],
        )
        for days in (("2013-01-02", "2013-01-03"), ("2013-01-01",))
    ]
    return ArchiveFacts(snapshot=table, archived=archived)


def example_move() -> RetentionOutcome:
    """One day moves, and one expires."""
    assert DAYS.archive is not None
    plan = plan_archive(DAYS, DAYS.archive, example_facts(), now_ms=20_000 * DAY_MS)
    return RetentionOutcome(plan=plan, version_after=8, figures=FIGURES)


def example_restore() -> RetentionOutcome:
    """The archived day comes back."""
    facts = example_facts()
    plan = plan_restore(DAYS, facts.snapshot, facts.archived, (), {})
    return RetentionOutcome(plan=plan, version_after=9, figures=FIGURES[1:])


def example_outcome() -> RetentionOutcome:
    """One file of 100 rows, one of them without a time."""
    ttl = Ttl(column="at", days=1, clock="newest_row")
    table = Table(key="bronze/t", write=Adopted(uri="/w/t"), ttl=ttl)
    bounds = {
        "old": TimeBounds(min_ms=DAY_MS, max_ms=DAY_MS, null_count=1),
        "new": TimeBounds(min_ms=9 * DAY_MS, max_ms=9 * DAY_MS, null_count=0, is_tight=True),
    }
    files = [data_file(10, "old"), data_file(10, "new")]
    layout = snapshot(files, columns=[Column(name="at", type="timestamp")])
    plan = plan_ttl(table, ttl, layout, bounds, now_ms=9 * DAY_MS)
    return RetentionOutcome(plan=plan, version_after=8, figures=FIGURES)
