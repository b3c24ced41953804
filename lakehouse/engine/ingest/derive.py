"""Updates derived tables from their inputs.

For a `Merge` or `Append`, only the first input's changes since the last consumed version are read
(all its rows if it is read for the first time, or its changes cannot be followed). Every other
input is read whole. Each input is read at the version that it had when the run started. The rows
and the consumed version are written in one commit.

**Safety properties**
- A run that finds no new rows in its inputs makes no commit, unless the declaration or the code of
  an `Overwrite` has changed (`test_write.py`).
- An `Overwrite` is skipped only if the last `Overwrite` read exactly the declared inputs, no row of
  these inputs has changed since, and the declaration still gives the table's columns
  (`test_schema_changes.py`).
- If a run is killed and repeated, no row is lost or duplicated (`test_write.py`).
- An `Append` adds only rows that no earlier run can have added. If this is unknown, the run stops
  with `Broken` and writes nothing (`test_write.py`, `test_derived_increments.py`).
- An `Append` or `Merge` is refused if the table's rows were written in another way, or merged by
  other keys, until the table is rebuilt (`test_write.py`, `engine/evolution/test_rebuild.py`).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, History, Merge, Overwrite
from lakehouse.core.delta.commits import INPUTS
from lakehouse.core.delta.recorded_code import (
    changed_code_sentence,
    code_changed_since,
    code_record,
    recorded_code,
)
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.ingest import derived_increments
from lakehouse.core.ingest.derived_increments import (
    KEYS,
    READ_MS,
    NothingNew,
    ReadAll,
    ReadChanges,
    changes_lost,
)
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.reasons import Explanation, Reason
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest import commit_rows, merge_rows
from lakehouse.engine.ingest.derived_inputs import (
    changed_rows,
    changes_are_gone,
    commits_of,
    confs_to_derive,
    increments_to_overwrite,
    merges_few,
    next_increment,
    with_archive,
)
from lakehouse.engine.ingest.transform_code import transform_code
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark.delta_writes import Transaction
from lakehouse.engine.spark.frames import table_at, with_members_of
from lakehouse.engine.spark.temporary_confs import USER_METADATA, session_confs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def derive(session: TableSession, target: TableFacts | None) -> WriteOutcome:
    """Updates a derived table (`target`, if it exists). The caller holds its lock."""
    lake = session.lake
    table = session.table
    inputs = facts_of_inputs(lake, table)
    # `write_table` refuses adopted tables. The declaration refuses a `History` without change data.
    assert not isinstance(table.write, Adopted | History)
    code = transform_code(table)
    changed_since = code_changed_since(recorded_code(commits_of(lake, target)), code)
    derivation = _Derivation(
        session=session, inputs=inputs, target=target, code=code, changed_since=changed_since
    )
    if isinstance(table.write, Overwrite):
        explanation = derivation.overwrite()
    else:
        explanation = derivation.write_increment(table.write)
    is_unchanged = explanation.reason is Reason.INPUTS_UNCHANGED
    if isinstance(table.write, Overwrite) and not is_unchanged:
        changed_since = None  # all rows were computed again
    if changed_since is not None:
        more = f"{explanation.more}; {changed_code_sentence(table.key, changed_since)}"
        explanation = replace(explanation, more=more)
    after = target if is_unchanged else lake.facts(table.key)
    outcome = commit_rows.outcome_of(
        lake, table, before=target, after=after, explanation=explanation
    )
    return replace(outcome, code_changed_since=changed_since)


def facts_of_inputs(lake: Lake, table: Table) -> Mapping[str, TableFacts]:
    """The facts of all inputs of a derived table, by key."""
    inputs = dict[str, TableFacts]()
    for source in table.inputs:
        facts = lake.facts(source.key)
        if facts is None:
            raise Refused(
                f"write of {table.key}: its input {source.key} has no table yet. Use `lakehouse "
                f"materialize {source.key}` first"
            )
        inputs[source.key] = facts
    return inputs


def transformed(
    session: TableSession,
    inputs: Mapping[str, TableFacts],
    increment: ReadAll | ReadChanges | None = None,
) -> "DataFrame":
    """Transforms the first input's increment (`None`: all its rows) with all other inputs."""
    table = session.table
    frames = {key: table_at(session.spark, facts.snapshot) for key, facts in inputs.items()}
    if isinstance(increment, ReadChanges):
        key = table.inputs[0].key
        frames[key] = changed_rows(session.spark, inputs[key].snapshot.uri, increment)
    if isinstance(increment, ReadAll) and increment.archived:
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
    app_id = derived_increments.consume_app_id(first.snapshot)
    read_ms = {app_id: first.history.committed_ms_of(upto)}
    return {READ_MS: read_ms, KEYS: derived_increments.merge_keys(table)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Derivation:
    """One run of a derived table, with the facts of its inputs by key.

    `target` is the table itself, or `None` if it does not exist yet. `code` is the hash of its
    transform. `changed_since` is the newest version with rows that other code computed, or `None`.
    """

    session: TableSession
    inputs: Mapping[str, TableFacts]
    target: TableFacts | None
    code: str | None
    changed_since: int | None

    def write_increment(self, write: Append | Merge) -> Explanation:
        """Writes the rows that are new in the first input."""
        lake = self.session.lake
        table = self.session.table
        first = self.inputs[table.inputs[0].key]
        increment = next_increment(lake, table, first, self.target)
        if isinstance(increment, NothingNew):
            return increment.explanation
        try:
            self._write(write, first, increment)
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
            increment = with_archive(lake, first, increment)
            # The failed write may have added columns.
            retry = replace(self, target=lake.facts(table.key))
            retry._write(write, first, increment)
        return increment.explanation

    def overwrite(self) -> Explanation:
        """Writes all rows again if a row of an input or the declaration has changed.

        With `evolution="automatic"`, also if the code has changed.
        """
        rows = transformed(self.session, self.inputs)
        lake = self.session.lake
        spark = self.session.spark
        table = self.session.table
        target = commit_rows.follow_declaration(lake, spark, table, rows, self.target)
        return replace(self, target=target)._overwrite_with(rows)

    def _overwrite_with(self, rows: "DataFrame") -> Explanation:
        """Replaces the table's rows, unless there is no reason to."""
        reasons = self._reasons_to_overwrite(rows)
        if not reasons:
            versions = ", ".join(
                f"{key} {facts.snapshot.version}" for key, facts in self.inputs.items()
            )
            return Reason.INPUTS_UNCHANGED.explain(versions=versions)
        lake = self.session.lake
        table = self.session.table
        metadata = {**read_by_overwrite(self.inputs), **code_record(self.code)}
        confs = {
            **confs_to_derive(lake.store, table, self.inputs, self.target, None),
            USER_METADATA: json.dumps(metadata, separators=(",", ":")),
        }
        with session_confs(self.session.spark, confs):
            commit_rows.write_rows(lake, table, rows, facts=self.target)
        more = "".join(f"; {explanation.sentence}" for explanation in reasons[1:])
        return replace(reasons[0], more=more)

    def _reasons_to_overwrite(self, rows: "DataFrame") -> list[Explanation]:
        """The reasons for an overwrite; empty if no overwrite is needed."""
        increments, removed = increments_to_overwrite(self.session.lake, self.inputs, self.target)
        reasons = list[Explanation]()
        for increment in increments:
            if not isinstance(increment, NothingNew):
                reasons.append(increment.explanation)
        if removed:
            change = f"its rows were also made from {', '.join(removed)}, which it no longer reads"
            reasons.append(Reason.DECLARATION_CHANGED.explain(what=change))
        target = None if self.target is None else self.target.snapshot
        differences = [*commit_rows.differences_from(rows, self.session.table, target)]
        if self.changed_since is not None and self.session.table.evolution == "automatic":
            differences.append(
                f"the code of its transform has changed since version {self.changed_since}"
            )
        if differences:
            reasons.append(Reason.DECLARATION_CHANGED.explain(what="; ".join(differences)))
        return reasons

    def _write(
        self, write: Append | Merge, first: TableFacts, increment: ReadAll | ReadChanges
    ) -> None:
        """Writes the increment's rows in one commit.

        Raises `Broken` if an existing `Append` would have to append the whole input again.
        """
        lake = self.session.lake
        table = self.session.table
        target = self.target
        if isinstance(write, Append) and isinstance(increment, ReadAll) and target is not None:
            raise Broken(
                f"write of {table.key}: {increment.sentence}, and appending it again would "
                f"duplicate rows. To continue with the current rows of {first.snapshot.table}, "
                f"use `lakehouse rebuild {table.key}`"
            )
        rows = transformed(self.session, self.inputs, increment)
        check_has_columns(table, rows)
        target = commit_rows.follow_declaration(lake, self.session.spark, table, rows, target)
        app_id = derived_increments.consume_app_id(first.snapshot)
        transaction = Transaction(app_id=app_id, version=increment.upto)
        metadata = {
            **read_by_increment(table, first, increment.upto),
            **code_record(self.code, earlier=self.changed_since),
        }
        confs = {
            **confs_to_derive(lake.store, table, self.inputs, target, increment),
            USER_METADATA: json.dumps(metadata),
        }
        with session_confs(self.session.spark, confs):
            if isinstance(write, Merge):
                rows = merge_rows.newest_per_key(rows, write)
            if isinstance(write, Merge) and target is not None:
                are_few = merges_few(lake.store, first, target, increment)
                merge = merge_rows.KeyedMerge(
                    snapshot=target.snapshot, write=write, transaction=transaction
                )
                merge_rows.merge_rows(self.session.spark, rows, merge, are_few=are_few)
            else:
                if target is not None:
                    types = {column.name: column.type for column in target.snapshot.columns}
                    rows = with_members_of(rows, types)
                commit_rows.write_rows(lake, table, rows, transaction)


def check_has_columns(table: Table, rows: "DataFrame") -> None:
    """Raises `Refused` unless the rows have all columns that the table's write mode names."""
    write = table.write
    required = tuple[str, ...]()
    if isinstance(write, Merge):
        required = (*write.keys, *write.order_by)
    elif isinstance(write, Append):
        required = write.partition_by
    missing = [name for name in required if name not in rows.columns]
    if missing:
        raise Refused(
            f"write of {table.key}: write= names column {missing[0]}, but the transform returns "
            f"only {', '.join(rows.columns)}. Correct write= or the transform"
        )
