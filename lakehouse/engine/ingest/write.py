"""One run of a table's write: landed files are loaded, derived tables follow their inputs.

The first input of a `Merge` or `Append` is read by its changes since the version that was consumed
last, every other input whole. Each input is pinned at the version that its log has at the start.
The rows and the consumed version are written in one commit. The table's lock is held throughout.

**Safety properties**
- A run that finds no new rows in its inputs makes no commit (`test_write.py`).
- An `Overwrite` does nothing only if it read exactly the declared inputs before, no row of them has
  changed since, and the declaration still gives the table's columns (`test_schema_changes.py`).
- However often a run is killed and repeated, no row is lost or doubled (`test_write.py`).
- An `Append` takes only rows that it cannot have had. If that is unknown, it stops with `Broken`
  and writes nothing (`test_write.py`, `test_increments.py`).
- An `Append` or `Merge` to a table whose rows were written in another way, or merged by other keys,
  is refused (`test_write.py`).
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.schema_changes import NEW_KEY
from lakehouse.core.declaration.table import Append, History, Merge, Overwrite, Table
from lakehouse.core.delta.commits import INPUTS, Commit
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest import increments
from lakehouse.core.ingest.increments import (
    CONSUME,
    KEYS,
    READ_MS,
    Increment,
    NothingNew,
    ReadAll,
    ReadChanges,
    Reader,
)
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.engine.delta_log import TableFacts, history_since, newest_first
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.load import LandingLoad
from lakehouse.engine.ingest.table_properties import apply_strategy, strategy_confs
from lakehouse.engine.ingest.work_size import confs_to_derive, merges_few
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.errors import causes_of, translated
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.session_settings import (
    HASH_MAPS,
    OLD_VERSIONS_REFUSED,
    READ_WHOLE,
    USER_METADATA,
    session_confs,
)
from lakehouse.engine.table_lock import hold, retry_conflicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Changes that were never recorded, or by another schema, and files that are gone.
# Source: Delta Lake 4.4.0, delta-error-classes.json; Spark 4.2.0, error-conditions.json
_NOT_RECORDED = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
)
_FILE_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"
_CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def write_table(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> WriteOutcome:
    """The outcome of one run of the table's write, also where it did nothing; `tell` gets a sentence after each batch of a load.

    Raises:
        Refused: others write the table; an input is not there yet; the declaration differs from the table that is there in more than new
            columns; or the table forgets which batches it holds.
        Transient: the table is held by somebody else, the server is gone, or others won every race for a commit.
        Broken: the rows to read are gone or changed, and reading the others again would double some; or its batches are unknown.
    """
    if isinstance(table.write, Adopted):
        raise Refused(
            f"write of {table.key}: others write it, at {table.write.uri}; accepted: to compact it, or to vacuum it"
        )
    started = time.monotonic()
    landed = LandingLoad(lake, spark, table, tell) if table.source else None

    def attempt() -> WriteOutcome:
        facts = lake.facts(table.key)
        with session_confs(
            spark,
            {
                OLD_VERSIONS_REFUSED: "false",
                HASH_MAPS: "true",
                **READ_WHOLE,
                **strategy_confs(table, facts),
            },
        ):
            target = apply_strategy(lake, spark, table, facts)
            return _derive(lake, spark, table, target) if landed is None else landed.run(target)

    with hold(lake, spark, table.key, owner=f"write of {table.key}"), translated():
        outcome = retry_conflicts(attempt)
    return replace(outcome, seconds=time.monotonic() - started)


def _derive(
    lake: Lake, spark: "SparkSession", table: Table, target: TableFacts | None
) -> WriteOutcome:
    inputs = dict[str, TableFacts]()
    for source in table.inputs:
        if (facts := lake.facts(source.key)) is None:
            raise Refused(
                f"write of {table.key}: its input {source.key} has no table yet; accepted: materialize {source.key} first"
            )
        inputs[source.key] = facts
    assert not isinstance(
        table.write, Adopted | History
    )  # write_table has refused the one, the declaration the other
    derivation = _Derivation(lake=lake, spark=spark, table=table, inputs=inputs, target=target)
    explanation = (
        derivation.overwrite()
        if isinstance(table.write, Overwrite)
        else derivation.follow(table.write)
    )
    after = target if explanation.reason is Reason.INPUTS_UNCHANGED else lake.facts(table.key)
    return commit_rows.outcome_of(
        lake, spark, table, before=target, after=after, explanation=explanation
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Derivation:
    """A table that is made from others, with the facts of its inputs by key; `target` is its own, `None` where there is no table yet."""

    lake: Lake
    spark: "SparkSession"
    table: Table
    inputs: Mapping[str, TableFacts]
    target: TableFacts | None

    def follow(self, write: Append | Merge) -> Explanation:
        """Writes what is new in the first input."""
        driver = self.inputs[self.table.inputs[0].key]
        increment = next_increment(self.lake, self.table, driver, self.target)
        if isinstance(increment, NothingNew):
            return increment.explanation
        try:
            self._write(write, driver, increment)
        except Exception as error:
            if not isinstance(increment, ReadChanges) or not _changes_are_gone(
                error, driver.snapshot
            ):
                raise
            lost = Reason.INPUT_HISTORY_LOST.explain(
                table=driver.snapshot.table, consumed=increment.first - 1, version=increment.upto
            )
            increment = ReadAll(upto=increment.upto, explanation=lost)
            # The first try may have added columns.
            again = replace(self, target=self.lake.facts(self.table.key))
            again._write(write, driver, increment)
        return increment.explanation

    def overwrite(self) -> Explanation:
        """Writes all rows again if an input has changed a row, or the declaration differs from the table."""
        consumed = increments.consumed_by_overwrite(_commits_of(self.lake, self.target))
        found = [_increment_of(self.lake, consumed, facts) for facts in self.inputs.values()]
        news = [
            increment.explanation for increment in found if not isinstance(increment, NothingNew)
        ]
        if removed := sorted({key for key, _ in consumed} - self.inputs.keys()):
            was_read = f"its rows were made of {', '.join(removed)}, too, which it no longer reads"
            news.append(Reason.DECLARATION_CHANGED.explain(what=was_read))
        rows = self._transformed(None)
        target = None if self.target is None else self.target.snapshot
        if different := commit_rows.differences_from(rows, self.table, target):
            news.append(Reason.DECLARATION_CHANGED.explain(what="; ".join(different)))
        if not news:
            versions = ", ".join(
                f"{key} {consumed[key, facts.snapshot.table_id][0]}"
                for key, facts in self.inputs.items()
            )
            return Reason.INPUTS_UNCHANGED.explain(versions=versions)
        read = {
            key: [
                facts.snapshot.table_id,
                version := facts.snapshot.version,
                facts.history.committed_ms_of(version),
            ]
            for key, facts in self.inputs.items()
        }
        with session_confs(
            self.spark, confs_to_derive(self.lake.store, self.table, self.inputs, self.target, None)
        ):
            commit_rows.write_rows(
                self.lake,
                self.table,
                rows,
                user_metadata=json.dumps({INPUTS: read}, separators=(",", ":")),
                facts=self.target,
            )
        return replace(
            news[0], more="".join(f"; {explanation.sentence}" for explanation in news[1:])
        )

    def _write(
        self, write: Append | Merge, driver: TableFacts, increment: ReadAll | ReadChanges
    ) -> None:
        lake, table, target = self.lake, self.table, self.target
        if isinstance(write, Append) and isinstance(increment, ReadAll) and target is not None:
            raise Broken(
                f"write of {table.key}: {increment.sentence}, and appending it again would double rows. To go on from the rows that "
                f"{driver.snapshot.table} has now, {NEW_KEY}"
            )
        rows = self._transformed(increment)
        named = (*write.keys, *write.order_by) if isinstance(write, Merge) else write.partition_by
        if missing := [name for name in named if name not in rows.columns]:
            found = ", ".join(rows.columns)
            raise Refused(
                f"write of {table.key}: its transform gives no column {missing[0]}, which its write= names; it gives {found}"
            )
        target = commit_rows.add_columns(lake, self.spark, table, rows, target)
        transaction = commit_rows.Transaction(
            app_id=increments.consume_app_id(driver.snapshot), version=increment.upto
        )
        read_ms = driver.history.committed_ms_of(increment.upto)
        told = json.dumps(
            {READ_MS: {transaction.app_id: read_ms}, KEYS: increments.merge_keys(table)}
        )
        with session_confs(
            self.spark,
            {
                **confs_to_derive(lake.store, table, self.inputs, target, increment),
                USER_METADATA: told,
            },
        ):
            if isinstance(write, Merge):
                rows = commit_rows.newest_per_key(rows, write)
            if isinstance(write, Merge) and target is not None:
                are_few = merges_few(lake.store, driver, target, increment)
                commit_rows.merge_rows(
                    self.spark, rows, target.snapshot, write, transaction, are_few=are_few
                )
            else:
                commit_rows.write_rows(lake, table, rows, transaction)

    def _transformed(self, increment: ReadAll | ReadChanges | None) -> "DataFrame":
        """The rows that the declaration makes of all inputs, or of the first one's increment and the others."""
        frames = {key: table_at(self.spark, facts.snapshot) for key, facts in self.inputs.items()}
        if isinstance(increment, ReadChanges):
            key = self.table.inputs[0].key
            frames[key] = _changes(self.spark, self.inputs[key].snapshot.uri, increment)
        assert self.table.transform is not None
        return self.table.transform(
            **{source.name: frames[source.key] for source in self.table.inputs}
        )


def next_increment(
    lake: Lake, table: Table, driver: TableFacts, target: TableFacts | None
) -> Increment:
    """The increment that an `Append` or `Merge`, there as `target`, reads of its first input now; the logs tell, however far back that was.

    Raises:
        Broken: an older copy of the input was put in its place.
        Refused: the rows that are there were written in another way.
    """
    increments.check_written_alike(table, _commits_of(lake, target))
    app_id, version = increments.consume_app_id(driver.snapshot), driver.snapshot.version
    known = {} if target is None else target.snapshot.transactions
    consumed = known.get(app_id)
    commits = (
        driver.history
        if consumed is None
        else history_since(lake.store, driver.history, consumed - 1)
    )
    if consumed is not None and (
        consumed > version
        or commits.has_replaced(
            consumed, increments.read_ms_of(_commits_of(lake, target), app_id, consumed)
        )
    ):
        raise Broken(
            f"write of {table.key}: version {consumed} of {driver.snapshot.table}, which it has consumed, is not there any more, and the "
            f"table is at version {version}: an older copy was put in its place. Put the newest log back; or, to go on from the rows that "
            f"are there now, {NEW_KEY}"
        )
    # An `Append` that never followed the input has, as far as its log tells, what it was made with.
    is_whole = isinstance(table.write, Merge) or not any(
        commit.version > 0 and app_id in commit.applications for commit in _commits_of(lake, target)
    )
    return increments.plan_increment(
        consumed,
        version,
        commits,
        is_anew=any(each.startswith(f"{CONSUME}{driver.snapshot.table}/") for each in known),
        is_whole=is_whole,
        is_append=isinstance(table.write, Append),
    )


def _commits_of(lake: Lake, target: TableFacts | None) -> Iterable[Commit]:
    """The commits of the table that is written, newest first, as far back as its log goes."""
    return () if target is None else newest_first(lake.store, target.history)


def _increment_of(
    lake: Lake, consumed: Mapping[tuple[str, str], tuple[int, int | None]], facts: TableFacts
) -> Increment:
    snapshot = facts.snapshot
    version, read_ms = consumed.get((snapshot.table, snapshot.table_id), (None, None))
    history = (
        facts.history if version is None else history_since(lake.store, facts.history, version - 1)
    )
    if version is not None and history.has_replaced(version, read_ms):
        version = None
    is_anew = any(key == snapshot.table for key, _ in consumed)
    return increments.plan_increment(
        version, snapshot.version, history, is_anew=is_anew, is_whole=True
    )


def _changes(spark: "SparkSession", uri: str, increment: ReadChanges) -> "DataFrame":
    """The rows that came, or came anew, in the versions of an increment."""

    def feed(first: int, upto: int) -> "DataFrame":
        reader = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", first)
            .option("endingVersion", upto)
        )
        return (
            reader.load(uri)
            .where("_change_type IN ('insert', 'update_postimage')")
            .drop(*_CHANGE_COLUMNS)
        )

    return reduce(
        lambda before, after: before.unionByName(after),
        (feed(*versions) for versions in increment.ranges),
    )


def _changes_are_gone(error: Exception, snapshot: Snapshot) -> bool:
    """Whether changes of a table were not recorded, or their files are gone; without a file of its newest version it is damaged itself."""
    for cause in causes_of(error):
        if cause.condition in _NOT_RECORDED:
            return True
        spellings = (cause.message, unquote(cause.message))
        if cause.condition == _FILE_GONE and any(f"{snapshot.uri}/" in each for each in spellings):
            return not any(
                f"{snapshot.uri}/{unquote(file.path)}" in each
                for file in snapshot.files
                for each in spellings
            )
    return False
