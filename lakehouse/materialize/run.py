"""Runs a table's write: loads landed files, or updates a derived table from its inputs.

The table's lock is held throughout. If the write conflicts with another writer's commit, it starts
again, a few times.

An increment is what a run reads of an input: all rows, the latest changes, or nothing.

For a `Merge` or `Append`, only the first input's changes since the last consumed version are read
(all its rows if it is read for the first time, or its changes cannot be followed). Every other
input is read whole. Each input is read at the version that it had when the run started. The rows
and the consumed version are written in one commit.

**Safety properties**
- A run that finds no new rows in its inputs makes no commit, unless the declaration or the code of
  an `Overwrite` has changed (`materialize/test_run.py`).
- An `Overwrite` is skipped only if the last `Overwrite` read exactly the declared inputs, no row of
  these inputs has changed since, and the declaration still gives the table's columns
  (`materialize/test_run.py`, `long/test_evolution.py`).
- Rows that a RESTORE of the table has removed are read again, or the run is refused
  (`materialize/test_run.py`).
- If a run is killed and repeated, no row is lost or duplicated (`materialize/test_run.py`).
- An `Append` adds only rows that no earlier run can have added. If this is unknown, the run stops
  with `Broken` and writes nothing (`materialize/test_run.py`, `materialize/test_plan.py`).
- An `Append` or `Merge` is refused if the table's rows were written in another way, or merged by
  other keys, until the table is rebuilt (`materialize/test_run.py`, `evolve/test_rebuild.py`).
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING
from urllib.parse import unquote

from lakehouse.base.errors import Broken, Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.reasons import Explanation, Reason
from lakehouse.declare.table import Append, Table
from lakehouse.delta.commits import ARCHIVE_APP_ID, CONSUME, INPUTS, Commit, Commits
from lakehouse.delta.log import TableFacts, newest_first
from lakehouse.delta.snapshot import Snapshot, types_by_name
from lakehouse.evolve.plan.changes import NEW_KEY
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.land.run import LandingLoad
from lakehouse.materialize.plan import (
    KEYS,
    READ_MS,
    Increment,
    NothingNew,
    ReadAll,
    ReadChanges,
    Reader,
    changed_code_sentence,
    changes_lost,
    check_written_alike,
    code_changed_since,
    code_record,
    consume_app_id,
    consumed_by_overwrite,
    has_followed,
    merge_keys,
    plan_increment,
    read_ms_of,
    still_consumed,
)
from lakehouse.spark.errors import causes_of, translated
from lakehouse.spark.frames import Transaction, retry_conflicts, table_at, with_members_of
from lakehouse.spark.temporary_confs import (
    USER_METADATA,
    Size,
    are_few,
    confs_to_read,
    merged_into,
    session_confs,
    whole_table,
)
from lakehouse.write import commit_rows
from lakehouse.write.outcome import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Error conditions of changes that were not recorded or have another schema, and of missing files.
# Source: Delta Lake 4.4.0, delta-error-classes.json; Spark 4.2.0, error-conditions.json
_NOT_RECORDED = (
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE",
)
_FILE_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST"


def write_table(
    lake: Lake,
    spark: "SparkSession",
    table: Table,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> WriteOutcome:
    """Runs the table's write. `tell` is called with sentences about the progress of a load.

    Raises:
        Refused: foreign jobs write the table; an input does not exist yet; the declaration needs
            changes to the table that are not safe; or a property makes Delta forget batches.
        Transient: another process holds the table's lock, the server is gone, or each attempt
            conflicted with another writer's commit.
        Broken: rows to read are gone or changed, and reading the input again would duplicate rows;
            or it is unknown which batches the table has.
    """
    if table.adopted:
        raise Refused(
            f"write of {table.key}: other jobs write it, at {table.adopted.uri}. Use `lakehouse "
            f"compact {table.key}` or `lakehouse vacuum {table.key}`"
        )
    started = time.monotonic()
    session = TableSession(lake=lake, spark=spark, table=table)
    load = LandingLoad(session, tell) if table.source else None

    def attempt() -> WriteOutcome:
        facts = lake.facts(table.key)
        target = commit_rows.apply_properties(session, facts)
        outcome = derive(session, target) if load is None else load.run(target)
        # Before a write, it is too early for a table that does not exist yet, and for the
        # clustering of an `Overwrite` that replaces columns, which removes it.
        # Source: delta-io/delta v4.4.0, WriteIntoDelta.scala, getNewDomainMetadata.
        return replace(outcome, facts=commit_rows.apply_properties(session, outcome.facts))

    with hold(lake, spark, table.key, owner=f"write of {table.key}"), translated():
        outcome = retry_conflicts(attempt)
    return replace(outcome, seconds=time.monotonic() - started)


def next_increment(
    lake: Lake, table: Table, first: TableFacts, target: TableFacts | None
) -> Increment:
    """The increment of the first input that an `Append` or `Merge` into `target` reads next.

    Raises:
        Broken: the input was replaced by an older copy of itself.
        Refused: the table's rows were written in another way, or a RESTORE has removed some of them
            since the input's newest version was read.
    """
    check_written_alike(table, commits_of(lake, target))
    version = first.snapshot.version
    transactions = {} if target is None else target.snapshot.transactions
    app_id = consume_app_id(first.snapshot)
    recorded = transactions.get(app_id)
    consumed = recorded
    history = first.history
    if recorded is not None:
        consumed = still_consumed(app_id, recorded, commits_of(lake, target))
    is_restored = consumed != recorded
    if consumed is not None:
        history = history_since_consumed(lake, table, first, target, consumed)
    if is_restored and recorded is not None and recorded >= version:
        raise Refused(
            f"write of {table.key}: a RESTORE has removed rows of it, and Delta skips a write that "
            f"records version {version} of {first.snapshot.table} again. Use `lakehouse rebuild "
            f"{table.key}`"
        )
    # An `Append` that has not read changes since its first write may hold all rows of the input.
    has_read_changes = has_followed(first.snapshot, commits_of(lake, target))
    prefix = f"{CONSUME}{first.snapshot.table}/"
    reader = Reader(
        read_another=any(each.startswith(prefix) for each in transactions),
        may_hold_all=table.merge is not None or not has_read_changes,
        is_append=isinstance(table.write, Append),
        is_restored=is_restored,
    )
    increment = plan_increment(consumed, version, history, reader)
    return with_archive(lake, first, increment) if isinstance(increment, ReadAll) else increment


def with_archive(lake: Lake, first: TableFacts, increment: ReadAll) -> ReadAll:
    """The increment, together with the input's archived rows at the same version."""
    if not archived_bytes(lake, first):
        return increment
    explanation = replace(increment.explanation, more="; with the rows of its archive")
    return replace(increment, with_archive=True, explanation=explanation)


def archived_bytes(lake: Lake, facts: TableFacts) -> int:
    """The bytes of a table's archive; 0 if there is none."""
    if ARCHIVE_APP_ID not in facts.snapshot.transactions:
        return 0
    # Imported here, because few tables have an archive.
    from lakehouse.retain.run.archive import read_state

    return read_state(lake, facts.snapshot.table, facts).applied.size_bytes


def history_since_consumed(
    lake: Lake, table: Table, first: TableFacts, target: TableFacts | None, consumed: int
) -> Commits:
    """The commits of the first input from the last `consumed` version on.

    Raises `Broken` if that version no longer exists.
    """
    key = first.snapshot.table
    version = first.snapshot.version
    history = lake.history_since(first, consumed - 1)
    read_ms = read_ms_of(commits_of(lake, target), consume_app_id(first.snapshot), consumed)
    if consumed > version or history.has_replaced(consumed, read_ms):
        # A rebuild can record only a version that is newer than the consumed version.
        advice = f"use `lakehouse rebuild {table.key}`" if consumed < version else NEW_KEY
        raise Broken(
            f"write of {table.key}: it has consumed version {consumed} of {key}, which no"
            f" longer exists. {key} is at version {version}: an older copy was put in its place."
            " Either put the newest log back, or, to continue with the rows of the older copy,"
            f" {advice}"
        )
    return history


def _size_of_changes(lake: Lake, facts: TableFacts, increment: ReadChanges) -> Size:
    """Rows and bytes of the files that the increment's commits added.

    The row count is estimated from the table's average row size.
    """
    commits = lake.history_since(facts, increment.first - 1).commits
    added_bytes = sum(each.added_bytes for each in commits if each.changed_data)
    row_count, size_bytes = whole_table(facts.snapshot)
    if row_count is not None:
        row_count *= added_bytes / max(size_bytes, 1)
    return row_count, added_bytes


def commits_of(lake: Lake, target: TableFacts | None) -> Iterable[Commit]:
    """The commits of the derived table, newest first, as far back as its log goes."""
    return () if target is None else newest_first(lake.store, target.history)


def _increment_of(
    lake: Lake, consumed: Mapping[tuple[str, str], tuple[int, int | None]], facts: TableFacts
) -> Increment:
    """The increment of one input since the last overwrite."""
    snapshot = facts.snapshot
    history = facts.history
    version, read_ms = consumed.get((snapshot.table, snapshot.table_id), (None, None))
    if version is not None:
        history = lake.history_since(facts, version - 1)
        if history.has_replaced(version, read_ms):
            version = None
    read_another = any(key == snapshot.table for key, _ in consumed)
    reader = Reader(read_another=read_another, may_hold_all=True)
    return plan_increment(version, snapshot.version, history, reader)


def changed_rows(spark: "SparkSession", uri: str, increment: ReadChanges) -> "DataFrame":
    """The rows inserted or updated in the versions of an increment."""

    def feed(first: int, upto: int) -> "DataFrame":
        reader = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", first)
            .option("endingVersion", upto)
        )
        changes = reader.load(uri).where("_change_type IN ('insert', 'update_postimage')")
        return changes.drop("_change_type", "_commit_version", "_commit_timestamp")

    feeds = [feed(first, upto) for first, upto in increment.ranges]
    return reduce(lambda rows, more_rows: rows.unionByName(more_rows), feeds)


def changes_are_gone(error: Exception, snapshot: Snapshot) -> bool:
    """Whether an error means that a table's changes were not recorded, or their files are gone.

    False if a file of the newest version is gone, because the table itself is damaged then.
    """
    for cause in causes_of(error):
        if cause.condition in _NOT_RECORDED:
            return True
        # The message may have the URL-encoded path.
        messages = (cause.message, unquote(cause.message))
        is_file_of_table = any(f"{snapshot.uri}/" in message for message in messages)
        if cause.condition == _FILE_GONE and is_file_of_table:
            live_files = (f"{snapshot.uri}/{unquote(file.path)}" for file in snapshot.files)
            return not any(name in message for name in live_files for message in messages)
    return False


def derive(session: TableSession, target: TableFacts | None) -> WriteOutcome:
    """Updates a derived table (`target`, if it exists). The caller holds its lock."""
    lake = session.lake
    table = session.table
    changed_since = code_changed_since(commits_of(lake, target), table.transform_code)
    derivation = _Derivation(
        lake=lake,
        spark=session.spark,
        table=table,
        inputs=facts_of_inputs(lake, table),
        target=target,
        changed_since=changed_since,
    )
    is_overwrite = table.is_overwrite
    explanation = derivation.overwrite() if is_overwrite else derivation.write_increment()
    is_unchanged = explanation.reason is Reason.INPUTS_UNCHANGED
    if is_overwrite and not is_unchanged:
        changed_since = None  # all rows were computed again
    if changed_since is not None:
        more = f"{explanation.more}; {changed_code_sentence(table.key, changed_since)}"
        explanation = replace(explanation, more=more)
    after = target if is_unchanged else lake.facts(table.key)
    outcome = commit_rows.outcome_of(session, before=target, after=after, explanation=explanation)
    return replace(outcome, code_changed_since=changed_since)


def facts_of_inputs(lake: Lake, table: Table) -> Mapping[str, TableFacts]:
    """The facts of all inputs of a derived table, by key."""
    asked = f"write of {table.key}: its input"
    return {source.key: lake.existing_facts(source.key, asked) for source in table.inputs}


def transformed(
    session: TableSession,
    inputs: Mapping[str, TableFacts],
    changes: ReadChanges | None = None,
    *,
    with_archive: bool = False,
) -> "DataFrame":
    """Transforms the first input's changes (`None`: all its rows) with all other inputs.

    With `with_archive`, the rows of the first input's archive are included.
    """
    table = session.table
    frames = {key: table_at(session.spark, facts.snapshot) for key, facts in inputs.items()}
    if changes is not None:
        key = table.inputs[0].key
        frames[key] = changed_rows(session.spark, inputs[key].snapshot.uri, changes)
    if with_archive:
        from lakehouse.retain.run.read import archived_rows

        source = replace(session, table=table.inputs[0])
        archived = archived_rows(source, inputs[source.key])
        if archived is not None:
            frames[source.key] = frames[source.key].unionByName(archived)
    assert table.transform is not None
    return table.transform(**{source.name: frames[source.key] for source in table.inputs})


def read_by_overwrite(inputs: Mapping[str, TableFacts]) -> dict[str, object]:
    """The metadata of an overwrite's commit: each input's id, version and commit time."""
    records = dict[str, object]()
    for key, facts in inputs.items():
        version = facts.snapshot.version
        committed_ms = facts.history.committed_ms_of(version)
        records[key] = [facts.snapshot.table_id, version, committed_ms]
    return {INPUTS: records}


def read_by_increment(table: Table, first: TableFacts, upto: int) -> dict[str, object]:
    """The metadata of an increment's commit: merge keys, and when version `upto` was committed."""
    app_id = consume_app_id(first.snapshot)
    read_ms = {app_id: first.history.committed_ms_of(upto)}
    return {READ_MS: read_ms, KEYS: merge_keys(table)}


@frozen
class _Derivation(TableSession):
    """One run of a derived table, with the facts of its inputs by key.

    `target` is the table itself, or `None` if it does not exist yet. `changed_since` is the newest
    version with rows that other code computed, or `None`.
    """

    inputs: Mapping[str, TableFacts]
    target: TableFacts | None
    changed_since: int | None

    def write_increment(self) -> Explanation:
        """Writes the rows that are new in the first input."""
        first = self.inputs[self.table.inputs[0].key]
        increment = next_increment(self.lake, self.table, first, self.target)
        if isinstance(increment, NothingNew):
            return increment.explanation
        try:
            self._write(first, increment)
        except Exception as error:
            is_gone = changes_are_gone(error, first.snapshot)
            if not is_gone or not isinstance(increment, ReadChanges):
                raise
            explanation = Reason.INPUT_READ_WHOLE.explain(
                table=first.snapshot.table,
                version=increment.upto,
                why=changes_lost(increment.first - 1),
            )
            increment = ReadAll(upto=increment.upto, explanation=explanation)
            increment = with_archive(self.lake, first, increment)
            # The failed write may have added columns.
            retry = replace(self, target=self.lake.facts(self.key))
            retry._write(first, increment)
        return increment.explanation

    def overwrite(self) -> Explanation:
        """Writes all rows again if a row of an input or the declaration has changed.

        With `evolution="automatic"`, also if the code has changed.
        """
        rows = transformed(self, self.inputs)
        target = commit_rows.follow_declaration(self, rows, self.target)
        reasons = self._reasons_to_overwrite(rows, target)
        if not reasons:
            versions = ", ".join(
                f"{key} {facts.snapshot.version}" for key, facts in self.inputs.items()
            )
            return Reason.INPUTS_UNCHANGED.explain(versions=versions)
        metadata = {**read_by_overwrite(self.inputs), **code_record(self.table.transform_code)}
        sizes = [whole_table(facts.snapshot) for facts in self.inputs.values()]
        with session_confs(self.spark, _confs(sizes, metadata)):
            commit_rows.write_rows(self, rows, facts=target)
        more = "".join(f"; {explanation.sentence}" for explanation in reasons[1:])
        return replace(reasons[0], more=more)

    def _reasons_to_overwrite(
        self, rows: "DataFrame", target: TableFacts | None
    ) -> list[Explanation]:
        """The reasons for an overwrite; empty if no overwrite is needed."""
        consumed = consumed_by_overwrite(commits_of(self.lake, target))
        reasons = list[Explanation]()
        for facts in self.inputs.values():
            increment = _increment_of(self.lake, consumed, facts)
            if not isinstance(increment, NothingNew):
                reasons.append(increment.explanation)
        removed = sorted({key for key, _ in consumed} - self.inputs.keys())
        if removed:
            change = f"its rows were also made from {', '.join(removed)}, which it no longer reads"
            reasons.append(Reason.DECLARATION_CHANGED.explain(what=change))
        differences = [*commit_rows.differences_from(rows, self.table, target)]
        if self.changed_since is not None and self.table.evolution == "automatic":
            differences.append(
                f"the code of its transform has changed since version {self.changed_since}"
            )
        if differences:
            reasons.append(Reason.DECLARATION_CHANGED.explain(what="; ".join(differences)))
        return reasons

    def _write(self, first: TableFacts, increment: ReadAll | ReadChanges) -> None:
        """Writes the increment's rows in one commit.

        Raises `Broken` if an existing `Append` would have to append the whole input again.
        """
        merge = self.table.merge
        exists = self.target is not None
        if exists and not merge and isinstance(increment, ReadAll):
            raise Broken(
                f"write of {self.key}: {increment.sentence}, and appending it again would "
                f"duplicate rows. To continue with the current rows of {first.snapshot.table}, "
                f"use `lakehouse rebuild {self.key}`"
            )
        has_few_rows = False
        if isinstance(increment, ReadChanges):
            sizes = [_size_of_changes(self.lake, first, increment)]
            rows = transformed(self, self.inputs, increment)
            if self.target is not None:
                has_few_rows = are_few(sizes[0][1], self.target.snapshot)
        else:
            sizes = [whole_table(first.snapshot)]
            if increment.with_archive:
                sizes.append((None, 0))  # its rows are not counted before they are read
            rows = transformed(self, self.inputs, with_archive=increment.with_archive)
        check_has_columns(self.table, rows)
        target = commit_rows.follow_declaration(self, rows, self.target)
        app_id = consume_app_id(first.snapshot)
        transaction = Transaction(app_id=app_id, version=increment.upto)
        metadata = {
            **read_by_increment(self.table, first, increment.upto),
            **code_record(self.table.transform_code, earlier=self.changed_since),
        }
        _, *others = self.inputs.values()
        sizes += [whole_table(facts.snapshot) for facts in others]
        if target is not None and merge:
            sizes.append(merged_into(target.snapshot))
        with session_confs(self.spark, _confs(sizes, metadata)):
            if merge:
                rows = commit_rows.newest_per_key(rows, merge)
            if merge and target is not None:
                commit_rows.merge_rows(
                    rows, target.snapshot, merge, transaction, are_few=has_few_rows
                )
            else:
                if target is not None:
                    rows = with_members_of(rows, types_by_name(target.snapshot.columns))
                commit_rows.write_rows(self, rows, transaction)


def _confs(sizes: Sequence[Size], metadata: Mapping[str, object]) -> dict[str, str]:
    """Session settings to read tables of these sizes, with the commit's metadata."""
    user_metadata = json.dumps(metadata)
    return {**confs_to_read(sizes), USER_METADATA: user_metadata}


def check_has_columns(table: Table, rows: "DataFrame") -> None:
    """Raises `Refused` unless the rows have all columns that the table's write mode names."""
    required = table.partition_by
    if table.merge:
        required = (*table.merge.keys, *table.merge.order_by)
    missing = [name for name in required if name not in rows.columns]
    if missing:
        raise Refused(
            f"write of {table.key}: write= names column {missing[0]}, but the transform returns "
            f"only {', '.join(rows.columns)}. Correct write= or the transform"
        )
