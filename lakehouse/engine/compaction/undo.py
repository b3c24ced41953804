"""A faulty compaction undone, where that loses nobody's rows: one RESTORE, and one look at what it did.

**Safety properties**
- Nothing is restored over a version that somebody else has written after the compaction.
- RESTORE looks for the newest version by itself. What somebody wrote between our look and that one is named, with the version that has it.
- Whether a RESTORE was done is told by the log alone; where that does not tell, the text says so.
- Tables downstream that follow the changes get no row twice: the restoring commit is marked, and increments pass it over.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.delta.commits import Commit
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.session_settings import USER_METADATA, session_confs
from lakehouse.engine.spark.sessions import is_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def undo(lake: Lake, spark: "SparkSession", before: Snapshot, commits: Sequence[Commit], faulty: Commit, why: str) -> str:
    """What happened, after the version before was restored, where that loses nobody's rows."""
    version, mark = faulty.version - 1, uuid4().hex
    found = f"compaction of {before.table}: version {faulty.version} was to have the rows of version {version}, but {why}"
    now = lake.facts(before.table)
    newest = faulty.version if now is None else now.snapshot.version
    if not {*range(faulty.version, newest + 1)} <= {commit.version for commit in commits}:
        return f"{found}; nothing is restored, since version {newest} was written after it; look at versions {version} and {newest}"
    failure: Exception | None = None
    try:
        _send(spark, before, version, mark)
    except Exception as error:  # it may have come after the commit: the log knows
        failure = error
    sent = f"{found}; RESTORE to version {version} was sent, and it is unknown whether it was done"
    try:
        now = lake.facts(before.table)
        assert now is not None
        history = history_since(lake.store, now.history, before.version)
    except Exception as error:
        return f"{sent} ({type(failure or error).__name__}): look at the versions from {version} on"
    made = history.marked(mark)
    if not made:
        if failure is None or is_lost(failure):
            reason = "the log does not show it" if failure is None else type(failure).__name__
            return f"{sent} ({reason}): look at the versions from {version} on"
        return f"{found}; restoring version {version} failed ({type(failure).__name__}), version {faulty.version} is still there"
    done = f"{found}; version {version} is restored"
    if not (missing := history.missing_after(newest)):
        return done
    return (
        f"{done} by version {made[-1].version}, over what somebody wrote meanwhile: the rows of version(s) {', '.join(map(str, missing))} "
        f"are in no newer version; look at what versions {missing[0]} to {made[-1].version} hold"
    )


def _send(spark: "SparkSession", before: Snapshot, version: int, mark: str) -> None:
    """Its commit says that it brings `version` back: Delta marks it as a change of data, and it is no news downstream."""
    with session_confs(spark, {USER_METADATA: json.dumps({"restored": version, "mark": mark})}):
        spark.sql(statements.restore(before.uri, version))
