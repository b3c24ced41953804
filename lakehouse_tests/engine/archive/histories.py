"""Random histories of a table with an archive: loads, late rows, runs that are killed, restores, compactions and expired rows.

After each step, the rows of table and archive together are exactly those ever written, less those that the TTL deleted.
"""

from contextlib import ExitStack
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from lakehouse import Archive, Ttl
from lakehouse.core.archive.restore_plan import RestoreRequest
from lakehouse.core.errors import Refused
from lakehouse.engine.archive import commit, copies, restore, run
from lakehouse.engine.archive.restore import run_restore
from lakehouse.engine.archive.run import run_archive
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import DiskStore
from lakehouse.engine.ttl import run as ttl_run
from lakehouse_tests.engine.archive.cases import (
    DAYS,
    KEY,
    Row,
    add_rows,
    archive_rows,
    contents_now,
    facts_now,
    session_of,
    table_rows,
)
from lakehouse_tests.kills import Killed, dying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY_MS, FIRST_MS = 86_400_000, 1_356_998_400_000  # 1 January 2013
# Where a process may die, before or after the step.
_DEATHS = (
    (run, "record_operation"),
    (run, "copy_files"),
    (DiskStore, "copy"),
    (copies, "_difference"),
    (run, "compare_copies"),
    (commit, "expect_commit"),
    (run, "delete_partitions"),
    (run, "verify_delete"),
    (commit, "settle_commit"),
    (restore, "record_operation"),
    (restore, "write_frame"),
)
_STEPS = 7


class History:
    """One history, which its seed decides."""

    def __init__(self, lake: Lake, spark: "SparkSession", seed: int) -> None:
        self._lake, self._spark, self._random = lake, spark, Random(seed)
        self._written = list[Row]()
        self._today = 3
        self._next_id = 0
        self.told = [f"seed {seed}"]

    def check(self) -> None:
        """Plays the history, and compares after each step."""
        self._load()
        for _ in range(_STEPS):
            step = self._random.choices(
                [self._load, self._archive, self._restore, self._compact, self._expire],
                [4, 6, 2, 1, 1],
            )[0]
            step()
            self._compare()
        self._run_archive()
        self._compare()

    def _compare(self) -> None:
        found = sorted([*table_rows(self._lake), *archive_rows(self._lake)])
        assert found == sorted(self._written), "; ".join(self.told)

    def _load(self) -> None:
        """Rows of the days up to today; some are late."""
        self._today += self._random.randrange(4)
        days = [max(1, self._today - self._random.choice((0, 0, 1, 2, 9))) for _ in range(4)]
        rows = [(self._next_id + place, min(day, 31)) for place, day in enumerate(days)]
        self._next_id += len(rows)
        add_rows(self._lake, rows)
        self._written += rows
        self.told.append(f"load {rows}")

    def _archive(self) -> None:
        owner, name = self._random.choice(_DEATHS)
        when = self._random.choice(("before", "after", "never", "never"))
        self.told.append(f"archive at day {self._today}, killed {when} {name}")
        with ExitStack() as stack:
            if when != "never":
                patch = stack.enter_context(pytest.MonkeyPatch.context())
                patch.setattr(owner, name, dying(getattr(owner, name), when))
            try:
                self._run_archive()
            except Killed:
                return

    def _run_archive(self) -> None:
        archive = Archive(
            older_than_days=self._random.randint(1, 5),
            clock=self._random.choice(("now", "newest_row")),
            late=self._random.choice(("append", "keep")),
        )
        self._at(run)
        run_archive(session_of(self._lake, self._spark, replace(DAYS, archive=archive)))

    def _restore(self) -> None:
        held = [dict(each.partition) for each in contents_now(self._lake).partitions]
        values = [{name: value or "" for name, value in each.items()} for each in held]
        if not values:
            return
        wanted = self._random.sample(values, self._random.randint(1, len(values)))
        when = self._random.choice(("before", "after", "never"))
        self.told.append(f"restore {wanted}, killed {when} the append")
        with ExitStack() as stack:
            if when != "never":
                patch = stack.enter_context(pytest.MonkeyPatch.context())
                patch.setattr(restore, "write_frame", dying(restore.write_frame, when))
            self._at(restore)
            try:
                run_restore(session_of(self._lake, self._spark), RestoreRequest(values=wanted))
            except Killed:
                return
            except Refused as error:
                if "was interrupted. Use `lakehouse archive run" not in str(error):
                    raise

    def _compact(self) -> None:
        DeltaTable(self._lake.settings.table_uri(KEY)).optimize.compact()
        self.told.append(f"compaction: version {facts_now(self._lake).snapshot.version}")

    def _expire(self) -> None:
        table = replace(DAYS, archive=None, ttl=Ttl(column="day", days=self._random.randint(3, 9)))
        before = table_rows(self._lake)
        if not before:
            return
        self._at(ttl_run)
        outcome = ttl_run.run(self._lake, lambda: self._spark, table)
        assert outcome.plan.cutoff_ms is not None
        cutoff_day = (outcome.plan.cutoff_ms - FIRST_MS) / DAY_MS + 1
        gone = [row for row in before if row[1] < cutoff_day]
        for row in gone:
            self._written.remove(row)
        self.told.append(f"TTL of {gone}")

    def _at(self, module: object) -> None:
        """Sets the clock of a module to today."""
        vars(module)["now_ms"] = lambda: FIRST_MS + self._today * DAY_MS
