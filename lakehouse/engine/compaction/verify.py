"""The rows that a compaction wrote are those that it read.

1. The rows of the files removed and of the files added are counted, and summed by a hash of their content that does not depend on their
   order, for each partition. Arrow does that (`content`), and has read the files removed while the statement ran.
2. Are they the same, the compaction stands.
3. Are they not, or can Arrow not tell, Spark does the same, for each commit, with the rows as they were just before the commit and as it
   made them. It knows deletion vectors, renamed columns and other calendars; its word is the last.
4. Are they not the same by Spark, or cannot the files added be read, the version before is restored, and the error says what was found.

**Safety properties**
- Nothing is restored over a version that somebody else has written after the compaction: that would lose their rows (`undo`).
- What is compared is pinned by version, file and deletion vector, so that other writers cannot make it differ.
- A file that Spark's answer does not name counts as unknown, never as no rows, unless the file itself says that it has none.
- A note of what is to be compared goes only when it was, or when nobody can compare it any more, which is said.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.core.delta.commits import Commit, History, brought_back_by
from lakehouse.core.delta.partition_values import by_name, type_of_typed_partition, typed_partition
from lakehouse.core.delta.paths import bare_uri, is_absolute
from lakehouse.core.delta.snapshot import DataFile, Snapshot
from lakehouse.core.errors import Broken, Refused
from lakehouse.engine.compaction.content_hash import READ_THROUGH_LOG, ReadAhead, row_count_of, sums_of, type_of_sum, type_of_sums
from lakehouse.engine.compaction.undo import undo
from lakehouse.engine.compaction.unverified_commits import Expected, expected, settled
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest.commit_rows import content_hash
from lakehouse.engine.ingest.parse_lines import literal_path
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.session_settings import (
    CORRUPT_FILES_IGNORED,
    HASH_MAPS,
    MISSING_FILES_IGNORED,
    OLD_VERSIONS_REFUSED,
    OPEN_BYTES,
    OPEN_COST,
    session_confs,
)
from lakehouse.engine.spark.sessions import first_line, is_conflict, is_lost, is_missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONFS = {
    OLD_VERSIONS_REFUSED: "false",
    HASH_MAPS: "true",
    OPEN_COST: str(OPEN_BYTES),  # small files are read many to a task
    CORRUPT_FILES_IGNORED: "false",
    MISSING_FILES_IGNORED: "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """What one commit removed, or added, as it was at `version`."""

    version: int
    files: tuple[DataFile, ...]


def verify(
    lake: Lake,
    spark: "SparkSession",
    before: Snapshot,
    after: TableFacts,
    commits: Sequence[Commit],
    ahead: ReadAhead | None = None,
) -> int:
    """The number of rows compared. `before` is the table that was planned for, `commits` what was committed, `after` the table since.

    `ahead` has read the files removed, if they are those that were planned.

    Raises:
        Broken: they differ, or the files added cannot be read; the version before is restored if nobody has written since.
    """
    removed = [
        _Side(version=each.version - 1, files=_files_at(lake, before, after, each.version - 1, each.removed_paths)) for each in commits
    ]
    added = [_Side(version=each.version, files=_files_at(lake, before, after, each.version, each.added_paths)) for each in commits]
    if (count := _equal_rows(lake, before, removed, added, ahead)) is not None:
        return count
    with session_confs(spark, _CONFS):
        try:
            sums = _sums(lake, spark, before, [*removed, *added])
        except Exception as error:
            if not _is_unreadable(error):
                raise
            _sums(lake, spark, before, removed)  # if these cannot be read, the compaction is not to blame
            why = f"its files cannot be read ({first_line(error)})"
            raise Broken(undo(lake, spark, before, commits, commits[0], why)) from error
        for commit, old, new in zip(commits, sums, sums[len(commits) :], strict=False):
            if old != new:
                raise Broken(undo(lake, spark, before, commits, commit, _difference(old, new)))
    return sum(count for each in sums[len(commits) :] for count, _ in each.values())


def verify_left(lake: Lake, spark: "SparkSession", table_key: str) -> None:
    """Verifies what a run committed that was ended before it did so itself; the caller holds the table's guard.

    Raises:
        Broken: as for `verify`; or the rows can be compared no more, which is told once.
        Exception: whatever else kept the rows from being compared; they still are to be.
    """
    note = expected(lake, table_key)
    if note is None:
        return
    with settled(lake, table_key):
        after = _facts_since(lake, table_key, note)
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
            if not (isinstance(error, Refused) or is_missing(error)):
                raise
            raise Broken(
                f"compaction of {table_key}: the run that committed version {commits[-1].version} was ended before it compared the rows, "
                f"and they can be compared no more ({first_line(error)}); look at the table; the next compaction goes on"
            ) from error


def _facts_since(lake: Lake, table_key: str, note: Expected) -> TableFacts | None:
    """The facts of now with every commit since the compaction began; `None` where the table that it found is there no more.

    Raises:
        Broken: the log no longer holds them all, so nobody can tell whether it committed.
    """
    facts = lake.facts(table_key)
    if facts is None or (note.version is not None and facts.snapshot.version < note.version):
        return None
    history = history_since(lake.store, facts.history, -1 if note.version is None else note.version)
    if note.version is not None and history.between(note.version, facts.snapshot.version) is None and not history.marked(note.mark):
        raise Broken(
            f"compaction of {table_key}: the run that began at version {note.version} was ended before it compared the rows, and the log "
            "no longer tells whether it committed; look at the table; the next compaction goes on"
        )
    return replace(facts, history=history)


def _undone(history: History, version: int) -> str | None:
    """That our RESTORE went back behind `version`, and what that did to the versions of others; `None` if none did."""
    if version not in history.undone():
        return None
    told = f"version {version} was undone by a run that was ended before it told why; the table's history has both"
    restores = [commit.version for commit in history.commits if brought_back_by(commit) is not None]
    between = [each.version for each in history.commits if version < each.version < restores[-1] and each.version not in restores]
    if not between:
        return told
    missing = history.missing_after(version)
    fate = f"the rows of {_numbers(missing)} are in no newer version" if missing else "that is brought back, with what was undone"
    somebody = f"in between somebody wrote version(s) {_numbers(between)}, and {fate}"
    return f"{told}; {somebody}: look at what versions {version} to {restores[-1]} hold"


def _numbers(versions: Iterable[int]) -> str:
    return ", ".join(map(str, versions))


def _files_at(lake: Lake, before: Snapshot, after: TableFacts, version: int, paths: Sequence[str]) -> tuple[DataFile, ...]:
    """The files of a version at these paths: from a layout at hand if no commit in between names one of them, or from the log.

    Raises:
        Broken: the version has not all of them, though a commit says so.
    """
    wanted, snapshot = set(paths), None
    for known in (before, after.snapshot):
        between = after.history.between(*sorted((known.version, version)))
        if between is not None and wanted.isdisjoint(_paths_of(between)):
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
    return files


def _paths_of(commits: Iterable[Commit]) -> set[str]:
    return {path for commit in commits for path in (*commit.added_paths, *commit.removed_paths)}


def _equal_rows(lake: Lake, snapshot: Snapshot, removed: Sequence[_Side], added: Sequence[_Side], ahead: ReadAhead | None) -> int | None:
    """How many rows both sides have, where Arrow finds that they are the same; `None` where it does not."""
    before, after = ([file for side in sides for file in side.files] for sides in (removed, added))
    there = sums_of(lake.store, snapshot, after)
    if there is None:
        return None
    here = ahead.sums() if ahead is not None and ahead.has_read(before) else sums_of(lake.store, snapshot, before)
    return sum(count for count, _ in there.values()) if here == there else None


def _sums(lake: Lake, spark: "SparkSession", snapshot: Snapshot, sides: Sequence[_Side]) -> list[type_of_sums]:
    """For each side, rows and the sum of their hashes by partition; as few jobs as possible, since each costs more than its work."""
    everywhere = not READ_THROUGH_LOG.isdisjoint(snapshot.features)
    plain = {_path(snapshot, file.path) for side in sides for file in side.files if not everywhere and file.deletion_vector is None}
    # The newest version has the same columns, and Delta has it in memory.
    newest = max(side.version for side in sides)
    shared = _by_file(snapshot, _read_files(spark, snapshot, plain, version=newest)) if plain else {}
    columns, sums = by_name(snapshot.columns), list[type_of_sums]()
    for side in sides:
        through_log = [file for file in side.files if everywhere or file.deletion_vector is not None]
        own = _by_file(snapshot, _read_table(spark, snapshot, through_log, version=side.version)) if through_log else {}
        asked = {file.path for file in through_log}
        found: dict[type_of_typed_partition, type_of_sum] = {}
        for file in side.files:
            count, total = _sum_of(lake, snapshot, file, own if file.path in asked else shared)
            if count:
                partition = typed_partition(file.partition, columns)
                so_far = found.get(partition, (0, 0))
                found[partition] = (so_far[0] + count, so_far[1] + total)
        sums.append(found)
    return sums


def _sum_of(lake: Lake, snapshot: Snapshot, file: DataFile, answer: Mapping[str, type_of_sum]) -> type_of_sum:
    """What Spark's answer says of a file. It names no file without rows, so of one that it does not name the file itself is asked.

    Raises:
        Broken: the file has rows, or cannot tell.
    """
    place = _place(snapshot, file.path)
    if place in answer:
        return answer[place]
    if row_count_of(lake.store, snapshot, file) == 0:
        return 0, 0
    raise Broken(
        f"compaction of {snapshot.table}: its rows cannot be compared, since Spark's answer, which names {len(answer)} file(s), "
        f"lacks {place}; nothing is restored; look at the table's newest versions"
    )


def _by_file(snapshot: Snapshot, frame: "DataFrame") -> Mapping[str, type_of_sum]:
    """Rows and the sum of their hashes, by the place of the file; a file without rows is not among them."""
    from pyspark.sql import functions as F  # noqa: N812

    fields = [field for field in frame.schema.fields if field.name not in snapshot.partition_columns]
    hashed = frame.select(F.col("_metadata.file_path").alias("path"), content_hash(fields).alias("hash"))
    # Two sums of half a hash each cannot overflow, and cost a tenth of one sum of decimals.
    high, low = F.sum(F.shiftright("hash", 32)), F.sum(F.col("hash").bitwiseAND(F.lit(0xFFFFFFFF)))
    rows = hashed.groupBy("path").agg(F.count(F.lit(1)).alias("row_count"), high.alias("high"), low.alias("low")).collect()
    return {_place(snapshot, row["path"]): (row["row_count"], (row["high"] << 32) + row["low"]) for row in rows}


def _path(snapshot: Snapshot, path: str) -> str:
    """The whole path of a file, which log and Spark both give as a URI, encoded once."""
    return unquote(path) if is_absolute(path) else f"{snapshot.uri}/{unquote(path)}"


def _place(snapshot: Snapshot, path: str) -> str:
    """The same in the one spelling in which paths are compared."""
    return bare_uri(_path(snapshot, path))


def _read_files(spark: "SparkSession", snapshot: Snapshot, paths: Iterable[str], *, version: int) -> "DataFrame":
    """The rows of files that tell them alone: a table's reader would open every file of a partition to compare its name."""
    from pyspark.sql.types import StructType

    table = spark.read.format("delta").option("versionAsOf", version).load(snapshot.uri)
    fields = [field for field in table.schema.fields if field.name not in snapshot.partition_columns]
    return spark.read.schema(StructType(fields)).parquet(*map(literal_path, sorted(paths)))


def _read_table(spark: "SparkSession", snapshot: Snapshot, files: Sequence[DataFile], *, version: int) -> "DataFrame":
    """The rows that the table had at `version` in the partitions of these files; a condition on a file's name would spare no reading."""
    table = spark.read.format("delta").option("versionAsOf", version).load(snapshot.uri)
    if not snapshot.partition_columns:
        return table
    return table.where(statements.partition_predicate(snapshot.columns, sorted({file.partition for file in files}, key=str)))


def _is_unreadable(error: Exception) -> bool:
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) and not is_lost(error) and not is_conflict(error)


def _difference(removed: type_of_sums, added: type_of_sums) -> str:
    differing = [key for key in removed.keys() | added.keys() if removed.get(key) != added.get(key)]
    return f"{_told(removed)} became {_told(added)}, differing in {len(differing)} partition(s)"


def _told(sums: type_of_sums) -> str:
    return f"{sum(count for count, _ in sums.values())} rows (checksum {sum(total for _, total in sums.values())})"
