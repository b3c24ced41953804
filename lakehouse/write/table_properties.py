"""Sets the table properties and clustering that a declaration needs.

1. Set the properties in one commit.
2. Change the clustering.
3. Unset the mark of a clustering that is no longer declared (`declare/compaction.py`).

**Safety properties**
- Nothing is committed if nothing differs: an ALTER aborts concurrent writers
  (`test_table_properties.py`).
- Properties that a person set are never unset.
- After a crash at any point, the same call ends in the same state.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.base.errors import Refused
from lakehouse.declare.compaction import CLUSTERING_MARK, clustering_change, policy_for
from lakehouse.declare.table import Table
from lakehouse.declare.vacuum import DEFAULT_LOG_RETENTION, LOG_RETENTION
from lakehouse.delta.log import TableFacts
from lakehouse.delta.protocol import span_ms_of
from lakehouse.evolve.plan.changes import CHANGE_KEYS, Kind, checked, compare
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.spark import statements
from lakehouse.spark.errors import first_line
from lakehouse.write.commit_rows import declared_properties
from lakehouse.write.outcome import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply_properties(
    lake: Lake, spark: "SparkSession", table: Table, facts: TableFacts | None
) -> TableFacts | None:
    """Applies properties and clustering, and returns the table's facts.

    The caller holds the table's lock.

    Raises:
        Refused: Delta refuses a property or the clustering; or clustering is declared, and the
            table has partitions; or the landed rows were written with another write mode or other
            keys.
    """
    from pyspark.errors import AnalysisException

    alterations = [] if facts is None else [*_statements(table, facts)]
    try:
        for statement in alterations:
            spark.sql(statement)
    except AnalysisException as error:
        raise Refused(
            f"{table.key}: Delta refuses the declared properties or clustering: "
            f"{first_line(error)}. Correct the declaration"
        ) from error
    return lake.facts(table.key) if alterations else facts


def with_properties(
    session: TableSession, before: TableFacts | None, outcome: WriteOutcome
) -> WriteOutcome:
    """Applies the declaration if the write created the table or removed its clustering.

    Before such a write, `apply_properties` is too early: the table does not exist, or the overwrite
    removes its clustering again.
    Source: delta-io/delta v4.4.0, WriteIntoDelta.scala, getNewDomainMetadata.
    """
    table = session.table
    after = outcome.facts
    is_new = before is None
    had_clustering = before is not None and bool(before.snapshot.clustering_columns)
    has_clustering = after is not None and bool(after.snapshot.clustering_columns)
    if after is not None and (is_new or (had_clustering and not has_clustering)):
        after = apply_properties(session.lake, session.spark, table, after)
    return replace(outcome, facts=after)


def _statements(table: Table, facts: TableFacts) -> Iterator[str]:
    """The ALTER statements that are needed, in the order of the module's steps."""
    snapshot = facts.snapshot
    declared = declared_properties(table)
    plan = compare(table, None, snapshot)
    # Checked first, because a statement below records the declared keys.
    if plan.of(Kind.LANDED_WRITE_CHANGED):
        checked(plan)
    layout = policy_for(table.layer, table.compaction).data_layout
    clustering = clustering_change(snapshot, layout)
    desired = {**declared}
    column_names = {column.name.lower() for column in snapshot.columns}
    change_keys = json.loads(declared.get(CHANGE_KEYS, "[]"))
    if not column_names.issuperset(key.lower() for key in change_keys):
        # A key is not a column of the table yet, because its rename has not been applied. The
        # recorded keys are not changed before the rename.
        del desired[CHANGE_KEYS]
    if clustering.mark is not None:
        desired[CLUSTERING_MARK] = clustering.mark
    existing = snapshot.properties
    # A longer log retention is only shortened if the declaration itself says so.
    is_kept_longer = _is_kept_as_long(existing.get(LOG_RETENTION), desired.get(LOG_RETENTION))
    if is_kept_longer and LOG_RETENTION not in table.properties:
        del desired[LOG_RETENTION]
    changed = {name: value for name, value in desired.items() if existing.get(name) != value}
    if changed:
        yield statements.set_properties(snapshot.uri, changed)
    if clustering.columns is not None:
        yield statements.cluster_by(snapshot.uri, clustering.columns)
    if clustering.mark is None and CLUSTERING_MARK in existing:
        yield statements.unset_properties(snapshot.uri, [CLUSTERING_MARK])


def _is_kept_as_long(existing: str | None, desired: str | None) -> bool:
    """Whether the log is already kept at least as long as `desired`.

    Without a property, Delta's default applies. False without `desired`, or if an interval cannot
    be parsed.
    """
    if desired is None:
        return False
    existing_ms = span_ms_of(existing or DEFAULT_LOG_RETENTION)
    desired_ms = span_ms_of(desired)
    return existing_ms is not None and desired_ms is not None and existing_ms >= desired_ms
