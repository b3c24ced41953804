"""One run of a table's write: landed files are loaded, derived tables follow their inputs.

1. The guard is taken, and held to the end.
2. The table is given what its strategy needs, where that differs, or what an earlier one needed is taken back.
3. The facts of the inputs are read from their logs, and each input is pinned at that version.
4. The first input of a `Merge` or `Append` is read by its changes since the version consumed before; everything else whole.
5. The rows and the version that they stand for are written in one commit.

**Safety properties**
- A run that finds no new rows in its inputs makes no commit.
- An `Overwrite` does nothing only where it read the inputs of its declaration, no others, and none has changed a row since.
- However often it is killed and run again, no row is lost and none is there twice.
- An `Append` takes only rows that it cannot have had: where that is unknown, it stops with `Broken` and writes nothing.
- Rows that another kind of write or other keys made are not added to: an `Append` or `Merge` of them is refused.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, assert_never
from urllib.parse import unquote

from lakehouse.core.adoption.adopted import Adopted
from lakehouse.core.declaration.table import Append, History, Merge, Overwrite, Table
from lakehouse.core.delta.commits import INPUTS, Commit
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest.increments import (
    CONSUME,
    KEYS,
    READ_MS,
    NothingNew,
    ReadAll,
    ReadChanges,
    check_written_alike,
    committed_ms,
    consumed_by_overwrite,
    is_another,
    merge_keys,
    plan_increment,
    read_ms_of,
    type_of_increment,
)
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.engine.delta_log import TableFacts, history_since, newest_first
from lakehouse.engine.ingest import commit_rows
from lakehouse.engine.ingest.load import load
from lakehouse.engine.ingest.table_properties import apply_strategy, declared_properties, strategy_confs
from lakehouse.engine.ingest.work_size import confs_to_derive, merges_few
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark.frames import table_at
from lakehouse.engine.spark.session_settings import HASH_MAPS, OLD_VERSIONS_REFUSED, READ_WHOLE, USER_METADATA, session_confs
from lakehouse.engine.spark.sessions import causes_of, translated
from lakehouse.engine.table_lock import hold, retry_conflicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Changes that were never recorded, and files that are gone. Source: Delta Lake 4.4.0, delta-error-classes.json; Spark 4.2.0
_NOT_RECORDED = "DELTA_MISSING_CHANGE_DATA"
_FILE_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"
_CHANGE_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")


def write_table(
    lake: Lake, spark: "SparkSession", table: Table, *, tell: Callable[[str], None] = lambda _: None, handed_batch: int | None = None
) -> WriteOutcome:
    """What one run of the table's write did, or why it did nothing; `tell` and `handed_batch` are for `load`.

    Raises:
        Refused: others write the table; an input is not there yet, or the table that is there has other columns than its declaration.
        Transient: the table is held by somebody else, the server is gone, or others won every race for a commit.
        Broken: the rows to read are gone, and reading the others again would double some.
    """
    if isinstance(table.write, Adopted):
        raise Refused(f"write of {table.key}: others write it, at {table.write.uri}; accepted: to compact it, or to vacuum it")
    started = time.monotonic()

    def attempt() -> WriteOutcome:
        facts = lake.facts(table.key)
        with session_confs(spark, {OLD_VERSIONS_REFUSED: "false", HASH_MAPS: "true", **READ_WHOLE, **strategy_confs(table, facts)}):
            target = apply_strategy(lake, spark, table, facts)
            if table.source:
                return load(lake, spark, table, target, tell, handed_batch=handed_batch)
            return _derive(lake, spark, table, target)

    with hold(lake, spark, table.key, owner=f"write of {table.key}"), translated():
        outcome = retry_conflicts(attempt)
    return replace(outcome, seconds=time.monotonic() - started)


def consume_app_id(read: Snapshot) -> str:
    """The transaction id under which a table records the version of its first input that its rows stand for.

    It names the input's identity, since a version tells nothing of an input that was deleted and made anew.
    """
    return f"{_consume_prefix(read)}{read.table_id}"


def _consume_prefix(read: Snapshot) -> str:
    return f"{CONSUME}{read.table}/"


def _derive(lake: Lake, spark: "SparkSession", table: Table, target: TableFacts | None) -> WriteOutcome:
    inputs: dict[str, TableFacts] = {}
    for source in table.inputs:
        facts = lake.facts(source.key)
        if facts is None:
            raise Refused(f"write of {table.key}: its input {source.key} has no table yet; accepted: materialize {source.key} first")
        inputs[source.key] = facts
    assert not isinstance(table.write, Adopted | History)  # write_table has refused the one, the declaration the other
    if isinstance(table.write, Overwrite):
        explanation = _replace(spark, lake, table, inputs, target)
    else:
        explanation = _follow(spark, lake, table, table.write, inputs, target)
    after = target if explanation.reason is Reason.INPUTS_UNCHANGED else lake.facts(table.key)
    return commit_rows.outcome_of(lake, spark, table, before=target, after=after, explanation=explanation)


def _follow(
    spark: "SparkSession", lake: Lake, table: Table, write: Append | Merge, inputs: Mapping[str, TableFacts], target: TableFacts | None
) -> Explanation:
    driver = inputs[table.inputs[0].key]
    increment = next_increment(lake, table, driver, target)
    if isinstance(increment, NothingNew):
        return increment.explanation
    transaction = commit_rows.Transaction(app_id=consume_app_id(driver.snapshot), version=increment.upto)
    try:
        _write_increment(spark, lake, table, write, inputs, target, increment, transaction)
    except Exception as error:
        if not isinstance(increment, ReadChanges) or not _changes_are_gone(error, driver.snapshot):
            raise
        lost = Reason.INPUT_HISTORY_LOST.explain(table=driver.snapshot.table, consumed=increment.first - 1, version=increment.upto)
        increment = ReadAll(upto=increment.upto, explanation=lost)
        _write_increment(spark, lake, table, write, inputs, target, increment, transaction)
    return increment.explanation


def next_increment(lake: Lake, table: Table, driver: TableFacts, target: TableFacts | None) -> type_of_increment:
    """What an `Append` or `Merge` that is there as `target` reads of its first input now; the logs tell, however far back that was.

    Raises:
        Broken: an older copy of the input was put in its place.
        Refused: the rows that are there were written in another way.
    """
    check_written_alike(table, _commits_of(lake, target))
    app_id, version = consume_app_id(driver.snapshot), driver.snapshot.version
    known = {} if target is None else target.snapshot.transactions
    consumed = known.get(app_id)
    commits = driver.history if consumed is None else history_since(lake.store, driver.history, consumed - 1)
    if consumed is not None and (
        consumed > version or is_another(commits, consumed, read_ms_of(_commits_of(lake, target), app_id, consumed))
    ):
        raise Broken(
            f"write of {table.key}: version {consumed} of {driver.snapshot.table}, which it has consumed, is not there any more, and the "
            f"table is at version {version}: an older copy was put in its place; accepted: {table.way_anew}"
        )
    # An `Append` that never followed the input has, as far as its log tells, what it was made with.
    is_whole = isinstance(table.write, Merge) or not any(
        commit.version > 0 and app_id in commit.applications for commit in _commits_of(lake, target)
    )
    return plan_increment(
        consumed,
        version,
        commits,
        is_anew=any(each.startswith(_consume_prefix(driver.snapshot)) for each in known),
        is_whole=is_whole,
        is_append=isinstance(table.write, Append),
    )


def _commits_of(lake: Lake, target: TableFacts | None) -> Iterable[Commit]:
    """The commits of the table that is written, newest first, as far back as its log goes."""
    return () if target is None else newest_first(lake.store, target.history)


def _write_increment(
    spark: "SparkSession",
    lake: Lake,
    table: Table,
    write: Append | Merge,
    inputs: Mapping[str, TableFacts],
    target: TableFacts | None,
    increment: ReadAll | ReadChanges,
    transaction: commit_rows.Transaction,
) -> None:
    if isinstance(write, Append) and isinstance(increment, ReadAll) and target is not None:
        raise Broken(f"write of {table.key}: {increment.sentence}, and appending it again would double rows; accepted: {table.way_anew}")
    frames = {key: table_at(spark, facts.snapshot) for key, facts in inputs.items()}
    frame = _transformed(table, frames | _first(spark, table, inputs, increment))
    commit_rows.check_shape(frame, table, None if target is None else target.snapshot)
    read_ms = committed_ms(inputs[table.inputs[0].key].history, transaction.version)
    told = json.dumps({READ_MS: {transaction.app_id: read_ms}, KEYS: merge_keys(table)})
    with session_confs(spark, {**confs_to_derive(lake.store, table, inputs, target, increment), USER_METADATA: told}):
        match write:
            case Merge():
                _check_has(frame, table, (*write.keys, *write.order_by))
                newest = commit_rows.newest_per_key(frame, write)
                if target is not None:
                    are_few = merges_few(lake.store, inputs, target, increment)
                    commit_rows.merge_rows(spark, newest, target.snapshot, write, transaction, are_few=are_few)
                    return
                _make(newest, lake, table, transaction)
            case Append():
                _check_has(frame, table, write.partition_by)
                _make(frame, lake, table, transaction)
            case _:
                assert_never(write)


def _make(frame: "DataFrame", lake: Lake, table: Table, transaction: commit_rows.Transaction) -> None:
    commit_rows.write_frame(
        frame,
        lake.settings.table_uri(table.key),
        mode="append",
        transaction=transaction,
        partition_by=commit_rows.partition_columns(table),
        properties=declared_properties(table),
    )


def _replace(spark: "SparkSession", lake: Lake, table: Table, inputs: Mapping[str, TableFacts], target: TableFacts | None) -> Explanation:
    consumed = consumed_by_overwrite(_commits_of(lake, target))
    increments = {key: _increment_of(lake, consumed, facts) for key, facts in inputs.items()}
    news = [increment.explanation for increment in increments.values() if not isinstance(increment, NothingNew)]
    if removed := sorted({key for key, _ in consumed} - inputs.keys()):
        news.append(Reason.INPUT_REMOVED.explain(tables=", ".join(removed)))
    if not news:
        versions = ", ".join(f"{key} {consumed[key, facts.snapshot.table_id][0]}" for key, facts in inputs.items())
        return Reason.INPUTS_UNCHANGED.explain(versions=versions)
    frame = _transformed(table, {key: table_at(spark, facts.snapshot) for key, facts in inputs.items()})
    commit_rows.check_shape(frame, table, None if target is None else target.snapshot)
    read = {
        key: [facts.snapshot.table_id, version := facts.snapshot.version, committed_ms(facts.history, version)]
        for key, facts in inputs.items()
    }
    with session_confs(spark, confs_to_derive(lake.store, table, inputs, target, None)):
        commit_rows.write_frame(
            frame,
            lake.settings.table_uri(table.key),
            mode="overwrite",
            properties=declared_properties(table),
            user_metadata=json.dumps({INPUTS: read}, separators=(",", ":")),
        )
    return replace(news[0], more="".join(f"; {explanation.sentence}" for explanation in news[1:]))


def _increment_of(lake: Lake, consumed: Mapping[tuple[str, str], tuple[int, int | None]], facts: TableFacts) -> type_of_increment:
    snapshot = facts.snapshot
    version, read_ms = consumed.get((snapshot.table, snapshot.table_id), (None, None))
    history = facts.history if version is None else history_since(lake.store, facts.history, version - 1)
    if version is not None and is_another(history, version, read_ms):
        version = None
    is_anew = any(key == snapshot.table for key, _ in consumed)
    return plan_increment(version, snapshot.version, history, is_anew=is_anew, is_whole=True)


def _first(
    spark: "SparkSession", table: Table, inputs: Mapping[str, TableFacts], increment: ReadAll | ReadChanges
) -> dict[str, "DataFrame"]:
    key = table.inputs[0].key
    if isinstance(increment, ReadAll):
        return {}
    feeds = [_changes(spark, inputs[key].snapshot.uri, first, upto) for first, upto in increment.ranges]
    return {key: reduce(lambda before, after: before.unionByName(after), feeds)}


def _changes(spark: "SparkSession", uri: str, first: int, upto: int) -> "DataFrame":
    """The rows that came, or came anew, in these versions."""
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", first).option("endingVersion", upto)
    return reader.load(uri).where("_change_type IN ('insert', 'update_postimage')").drop(*_CHANGE_COLUMNS)


def _transformed(table: Table, frames: Mapping[str, "DataFrame"]) -> "DataFrame":
    assert table.transform is not None
    return table.transform(**{source.name: frames[source.key] for source in table.inputs})


def _check_has(frame: "DataFrame", table: Table, names: tuple[str, ...]) -> None:
    if missing := [name for name in names if name not in frame.columns]:
        found = ", ".join(frame.columns)
        raise Refused(f"write of {table.key}: its transform gives no column {missing[0]}, which its write= names; it gives {found}")


def _changes_are_gone(error: Exception, snapshot: Snapshot) -> bool:
    """Whether changes of a table were not recorded, or their files are gone, whatever statement failed over it.

    A file that its newest version reads is another matter: with that one the table itself is damaged.
    """
    for text, condition in causes_of(error):
        if condition == _NOT_RECORDED:
            return True
        spellings = (text, unquote(text))
        if condition == _FILE_GONE and any(f"{snapshot.uri}/" in each for each in spellings):
            return not any(f"{snapshot.uri}/{unquote(file.path)}" in each for file in snapshot.files for each in spellings)
    return False
