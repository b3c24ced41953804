"""One compaction: what the plan says, done, and held against what happened.

1. The guard is taken, and held to the end.
2. Facts are read from the log, and the plan is made from them; a plan that does nothing ends here.
3. OPTIMIZE runs, limited to the plan's partitions and with its sizes; the plan's figures go into its commit.
4. The commit is read from the log: what was really removed and added.
5. The rows of the removed files and of the added files are compared (`verify`).

**Safety properties**
- Files are only ever replaced by Delta's own OPTIMIZE, whose commit changes no data and deletes nothing from storage.
- A compaction whose rows differ does not stay, unless somebody has written after it; either way it ends in `Broken`.
"""

import time
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.compaction import CompactionPlan, plan_table
from lakehouse.core.errors import Refused
from lakehouse.core.history import Commit
from lakehouse.core.outcome import CompactionOutcome
from lakehouse.core.table import Table
from lakehouse.engine.clock import now_ms
from lakehouse.engine.guard import hold, retry_conflicts
from lakehouse.engine.lake import Lake
from lakehouse.engine.rewrite import run_statement
from lakehouse.engine.spark import translated
from lakehouse.engine.verify import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(lake: Lake, table: Table) -> CompactionPlan | None:
    """What a compaction would do now, from the log alone; `None` where there is no table."""
    facts = lake.facts(table.key)
    return None if facts is None else plan_table(table, facts.layout, facts.history, now_ms=now_ms())


def compact(lake: Lake, spark: "SparkSession", table: Table, *, owner: str | None = None) -> CompactionOutcome:
    """What a compaction of `table` did, beside its plan; a plan that does nothing is not an error. `owner` says who asks.

    Raises:
        Refused: there is no table yet, or it has a feature under which OPTIMIZE cannot be planned.
        Transient: the table is held by somebody else, or the server is gone.
        Broken: the rows after it are not those before it.
    """
    with hold(lake, spark, table.key, owner=owner or f"compaction of {table.key}"), translated():
        return retry_conflicts(lambda: _compact(lake, spark, table))


def _compact(lake: Lake, spark: "SparkSession", table: Table) -> CompactionOutcome:
    before = lake.facts(table.key)
    if before is None:
        raise Refused(f"compaction of {table.key}: there is no table yet; accepted: materialize {table.key} first")
    planned = plan_table(table, before.layout, before.history, now_ms=now_ms())
    if not planned.bins:
        return CompactionOutcome(plan=planned, version_after=None)
    mark = uuid4().hex
    started = time.monotonic()
    run_statement(spark, before.layout, planned, mark)
    seconds_optimize = time.monotonic() - started
    commit = _commit_of(lake, table, mark)
    if commit is None:
        return CompactionOutcome(plan=planned, version_after=None, seconds_optimize=seconds_optimize)
    started = time.monotonic()
    row_count = verify(lake, spark, before.layout, commit)
    return CompactionOutcome(
        plan=planned,
        version_after=commit.version,
        files_removed=len(commit.removed_paths),
        files_added=len(commit.added_paths),
        bytes_removed=commit.removed_bytes,
        bytes_added=commit.added_bytes,
        rows_verified=row_count,
        seconds_optimize=seconds_optimize,
        seconds_verify=time.monotonic() - started,
    )


def _commit_of(lake: Lake, table: Table, mark: str) -> Commit | None:
    """The commit that carries our mark; `None` if the files of the plan were gone before OPTIMIZE looked, and it found nothing to do."""
    after = lake.facts(table.key)
    assert after is not None
    found = [commit for commit in after.history.commits if commit.user_metadata is not None and mark in commit.user_metadata]
    return found[-1] if found else None
