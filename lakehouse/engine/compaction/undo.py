"""A faulty compaction undone, where that loses nobody's rows.

**Safety properties**
- Nothing is restored over a version that somebody else has written after the compaction. RESTORE looks for the newest version by itself;
  what was written between our look and that one is restored, in its turn, as often as that happens, up to a few times.
- What the newest version is without after that is told by version; so is a RESTORE of which nobody knows whether it was done.
- Tables downstream that follow the changes get no row twice: the restoring commit is marked, and increments pass it over.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.delta.commits import Commit, History
from lakehouse.core.delta.snapshot import Layout
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.session_settings import USER_METADATA, session_confs
from lakehouse.engine.spark.sessions import is_lost

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Who commits within each of so many RESTOREs would do so within the next.
_ROUNDS = 5


class _Unknown(Exception):
    """A RESTORE was sent, and nobody can tell whether it made a version; the text says where to look."""


def undo(lake: Lake, spark: "SparkSession", before: Layout, commits: Sequence[Commit], faulty: Commit, why: str) -> str:
    """What happened, after the version before was restored, where that loses nobody's rows."""
    found = f"compaction of {before.table}: version {faulty.version} was to have the rows of version {faulty.version - 1}, but {why}"
    now = lake.facts(before.table)
    newest = faulty.version if now is None else now.layout.version
    if not {*range(faulty.version, newest + 1)} <= {commit.version for commit in commits}:
        return (
            f"{found}; nothing is restored, since version {newest} was written after it; look at versions {faulty.version - 1} and {newest}"
        )
    try:
        made, history = _restore(lake, spark, before, faulty.version - 1)
    except _Unknown as error:
        return f"{found}; {error}"
    except Exception as error:  # what was found must be told, whatever became of the remedy
        return f"{found}; restoring version {faulty.version - 1} failed ({type(error).__name__}), version {faulty.version} is still there"
    done = f"{found}; version {faulty.version - 1} is restored"
    return done if made == newest + 1 else f"{done}{_given_back(lake, spark, before, history, newest, made)}"


def _given_back(lake: Lake, spark: "SparkSession", before: Layout, history: History, seen: int, made: int) -> str:
    """What became of what somebody wrote after version `seen`, our last look, and our RESTORE, which made version `made`, took away."""
    told = ""
    for number in range(1, _ROUNDS + 1):
        told += f" by version {made}, over version {made - 1}, which was written meanwhile"
        try:
            again, history = _restore(lake, spark, before, made - 1)
        except _Unknown as error:
            return f"{told}; {error}"
        except Exception as error:
            return f"{told}; restoring version {made - 1} failed ({type(error).__name__}){_missing(history, seen)}"
        told += ", so that one is restored"
        if again == made + 1:
            # Each brings back what the last but one had: the first the faulty files, the second those before them, and so on.
            fault = ", with the fault" if number % 2 else ""
            return f"{told} by version {again}{fault}{_missing(history, seen)}; look at what versions {seen + 1} to {again} hold"
        made = again
    return (
        f"{told} by version {made}, over version {made - 1}, which was written meanwhile; it is not tried a {_ROUNDS + 1}th time"
        f"{_missing(history, seen)}; look at what versions {seen + 1} to {made} hold"
    )


def _missing(history: History, seen: int) -> str:
    missing = history.missing_after(seen)
    return f": the rows of version(s) {', '.join(map(str, missing))} are in no newer version" if missing else ""


def _restore(lake: Lake, spark: "SparkSession", before: Layout, version: int) -> tuple[int, History]:
    """The version that brings `version` back, and the history with it.

    Raises:
        _Unknown: RESTORE was sent, and the log does not answer, or the server was lost and may do it yet.
        Exception: nothing is restored.
    """
    mark, failure = uuid4().hex, None
    try:
        _send(spark, before, version, mark)
    except Exception as error:  # it may have come after the commit: the log knows
        failure = error
    try:
        facts = lake.facts(before.table)
        known = History(table=before.table, commits=()) if facts is None else facts.history
        history = history_since(lake.store, known, before.version)
    except Exception as error:
        raise _Unknown(_unknown(version, failure or error)) from error
    if made := history.marked(mark):
        return made[-1].version, history
    if failure is None or is_lost(failure):
        raise _Unknown(_unknown(version, failure)) from failure
    raise failure


def _unknown(version: int, error: Exception | None) -> str:
    why = "the log does not show it" if error is None else type(error).__name__
    return f"RESTORE to version {version} was sent, and it is unknown whether it was done ({why}): look at the versions from {version} on"


def _send(spark: "SparkSession", before: Layout, version: int, mark: str) -> None:
    """Its commit says that it brings `version` back: Delta marks it as a change of data, and it is no news downstream."""
    with session_confs(spark, {USER_METADATA: json.dumps({"restored": version, "mark": mark})}):
        spark.sql(statements.restore(before.uri, version))
