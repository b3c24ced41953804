"""Verifies that the rows that a compaction wrote are those that it read.

1. With `verify="rows"` (the default), row counts and column statistics of the removed and added
   files are compared, as the log has them (`log_comparison`). If they are equal, the compaction
   stands, and no data is read.
2. Otherwise Spark counts the rows and sums a hash of their content by partition, for each commit,
   just before it and as it made them (`spark_content`).
3. If these differ, or the added files cannot be read, the version before is restored, and the
   error says what was found.

**Safety properties** (tests in `test_verify.py`, `test_undo.py`)
- Nothing is restored over a version that another writer committed after the compaction: that would
  lose its rows.
- RESTORE takes the newest version by itself. A commit between our look and that one is named, with
  the version that has it.
- Only the log shows whether a RESTORE was done; if it does not, the message says so.
- Derived tables that follow changes get no row twice: the restoring commit is marked, and
  increments skip it.
- What is compared is pinned by version, file and deletion vector, so other writers cannot change it.
- Missing or different statistics are never taken for equal: then every row is compared.
- The note of what is to be compared is removed only after the comparison, or when nothing can be
  compared any more, which is reported.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from lakehouse.core.compaction.outcome import Comparison
from lakehouse.core.delta.commits import Commit, Commits, brought_back_by, prediction_in
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.compaction.log_comparison import equal_by_log
from lakehouse.engine.compaction.spark_content import (
    READ_CONFS,
    Side,
    is_unreadable,
    spark_sums,
    type_of_sums,
)
from lakehouse.engine.compaction.unverified_commits import Expected, expected, settled
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import first_line, is_lost, is_missing
from lakehouse.engine.spark.session_settings import USER_METADATA, session_confs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def verify(
    lake: Lake,
    spark: "SparkSession",
    before: Snapshot,
    after: TableFacts,
    commits: Sequence[Commit],
) -> Comparison:
    """Compares the rows of `commits`, made from the planned table `before`; `after` is the table now.

    Raises:
        Broken: they differ, or the files added cannot be read; the version before is restored if nobody has written since.
    """
    removed = [_side(lake, before, after, each.version - 1, each.removed_paths) for each in commits]
    added = [_side(lake, before, after, each.version, each.added_paths) for each in commits]
    predictions = [prediction_in(commit) for commit in commits]
    by_log = all(each is not None and each.verify == "rows" for each in predictions)
    if by_log and (count := equal_by_log(lake.store, before, removed, added)) is not None:
        return Comparison(by="rows", row_count=count)
    with session_confs(spark, READ_CONFS):
        try:
            sums = spark_sums(lake, spark, before, [*removed, *added])
        except Exception as error:
            if not is_unreadable(error):
                raise
            sums = spark_sums(
                lake, spark, before, removed
            )  # if these cannot be read, the compaction is not to blame
            try:
                sums += spark_sums(lake, spark, before, added)  # nor if storage had failed once
            except Exception as again:
                if not is_unreadable(again):
                    raise
                why = f"its files cannot be read ({first_line(again)})"
                raise Broken(undo(lake, spark, before, commits, commits[0], why)) from again
        for commit, old, new in zip(commits, sums, sums[len(commits) :], strict=False):
            if old != new:
                raise Broken(undo(lake, spark, before, commits, commit, _difference(old, new)))
    return Comparison(
        by="content",
        row_count=sum(count for each in sums[len(commits) :] for count, _ in each.values()),
    )


def verify_left(lake: Lake, spark: "SparkSession", table_key: str) -> None:
    """Verifies what a run committed that was ended before it did so itself; the caller holds the table's guard.

    Where the table is not there, its disk may only be away: what is to be verified stays so.

    Raises:
        Broken: as for `verify`; or the rows can be compared no more, which is told once.
        Exception: whatever else kept the rows from being compared; they still are to be.
    """
    note = expected(lake, table_key)
    if note is None or (facts := lake.facts(table_key)) is None:
        return
    with settled(lake, table_key, note.mark):
        after = _facts_since(lake, facts, note)
        commits = () if after is None else after.history.marked(note.mark)
        if after is None or not commits:
            return
        if (undone := _undone(after.history, commits[-1].version)) is not None:
            raise Broken(f"compaction of {table_key}: {undone}; the next compaction goes on")
        try:
            before = lake.facts(table_key, version=commits[0].version - 1)
            assert before is not None
            verify(lake, spark, before.snapshot, after, commits)
        except Exception as error:
            is_final = isinstance(error, Refused) or is_missing(error)
            if (
                not is_final or lake.facts(table_key) is None
            ):  # storage that is away, or refuses the log, too, says nothing of the rows
                raise
            raise Broken(
                f"compaction of {table_key}: the run that committed version {commits[-1].version} was ended before it compared the rows, "
                f"and they can be compared no more ({first_line(error)}); look at the table; the next compaction goes on"
            ) from error


def undo(
    lake: Lake,
    spark: "SparkSession",
    before: Snapshot,
    commits: Sequence[Commit],
    faulty: Commit,
    why: str,
) -> str:
    """A sentence on the version before, which is restored where that loses nobody's rows."""
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
        f"{done} by version {made[-1].version}, over what somebody wrote meanwhile: the rows of version(s) {_numbers(missing)} "
        f"are in no newer version; look at what versions {missing[0]} to {made[-1].version} hold"
    )


def _send(spark: "SparkSession", before: Snapshot, version: int, mark: str) -> None:
    """Its commit says that it brings `version` back: Delta marks it as a change of data, and it is no news downstream."""
    with session_confs(spark, {USER_METADATA: json.dumps({"restored": version, "mark": mark})}):
        spark.sql(statements.restore(before.uri, version))


def _facts_since(lake: Lake, facts: TableFacts, note: Expected) -> TableFacts | None:
    """The facts of now with every commit since the compaction began; `None` where the table that it found is there no more."""
    if note.version is not None and facts.snapshot.version < note.version:
        return None
    history = history_since(lake.store, facts.history, -1 if note.version is None else note.version)
    if (
        note.version is not None
        and history.between(note.version, facts.snapshot.version) is None
        and not history.marked(note.mark)
    ):
        raise Broken(
            f"compaction of {facts.snapshot.table}: the run that began at version {note.version} was ended before it compared the rows, "
            "and the log no longer tells whether it committed; look at the table; the next compaction goes on"
        )
    return replace(facts, history=history)


def _undone(history: Commits, version: int) -> str | None:
    """That our RESTORE went back behind `version`, and what that did to the versions of others; `None` if none did."""
    if version not in history.undone():
        return None
    told = f"version {version} was undone by a run that was ended before it told why; the table's history has both"
    restores = [commit.version for commit in history.commits if brought_back_by(commit) is not None]
    between = [
        each.version
        for each in history.commits
        if version < each.version < restores[-1] and each.version not in restores
    ]
    if not between:
        return told
    missing = history.missing_after(version)
    fate = (
        f"the rows of {_numbers(missing)} are in no newer version"
        if missing
        else "that is brought back, with what was undone"
    )
    somebody = f"in between somebody wrote version(s) {_numbers(between)}, and {fate}"
    return f"{told}; {somebody}: look at what versions {version} to {restores[-1]} hold"


def _numbers(versions: Iterable[int]) -> str:
    return ", ".join(map(str, versions))


def _side(
    lake: Lake, before: Snapshot, after: TableFacts, version: int, paths: Sequence[str]
) -> Side:
    """The files of a version at these paths: from a layout at hand if no commit in between names one of them, or from the log."""
    wanted, snapshot = set(paths), None
    for known in (before, after.snapshot):
        between = after.history.between(*sorted((known.version, version)))
        if between is not None and wanted.isdisjoint(
            path for each in between for path in (*each.added_paths, *each.removed_paths)
        ):
            snapshot = known
            break
    if snapshot is None:
        facts = lake.facts(before.table, version=version)
        assert facts is not None
        snapshot = facts.snapshot
    files = tuple(file for file in snapshot.files if file.path in wanted)
    if lacking := sorted(wanted.difference(file.path for file in files)):
        raise Broken(
            f"compaction of {before.table}: its rows cannot be compared, since version {version} lacks {len(lacking)} file(s) that its "
            f"commit names, first {lacking[0]}; nothing is restored; look at the table's newest versions"
        )
    return Side(version=version, files=files)


def _difference(removed: type_of_sums, added: type_of_sums) -> str:
    differing = [key for key in removed.keys() | added.keys() if removed.get(key) != added.get(key)]
    before, after = (
        f"{sum(count for count, _ in sums.values())} rows (checksum {sum(total for _, total in sums.values())})"
        for sums in (removed, added)
    )
    return f"{before} became {after}, differing in {len(differing)} partition(s)"
