"""Sets the table properties and clustering that a declaration and its strategy need.

1. Set the properties in one commit, together with a mark that records the strategy's properties.
2. Change the clustering.
3. Unset properties that are no longer needed.

**Safety properties**
- Nothing is committed if nothing differs: an ALTER aborts concurrent writers
  (`test_table_strategy.py`).
- Properties that a person set are never unset (`long/test_strategy.py`).
- After a crash at any point, the same call ends in the same state.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.core.compaction.target_size import target_in_force, write_history_of
from lakehouse.core.declaration import strategy_properties
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.strategies import AutoCompaction
from lakehouse.core.declaration.strategy_properties import CLUSTERING_MARK, PropertyChanges
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.vacuum_policy import (
    DEFAULT_LOG_RETENTION,
    LOG_RETENTION,
)
from lakehouse.core.delta.protocol import span_ms_of
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.declaration_changes import CHANGE_KEYS, compare
from lakehouse.core.evolution.plan import Kind, checked
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.scheduling.strategy_selection import StrategyChoice, strategy_of
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.ingest.commit_rows import declared_properties
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import first_line
from lakehouse.engine.spark.temporary_confs import (
    AUTO_COMPACT_MIN_FILES,
    AUTO_COMPACT_SMALLER_THAN,
    AUTO_COMPACT_UP_TO,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def strategy_in_force(table: Table, facts: TableFacts | None) -> StrategyChoice:
    """The strategy that the table uses, and why. `facts` is `None` for a new table.

    `Chosen` is replaced by the strategy that it stands for.
    """
    return strategy_of(
        policy_for(table.layer, table.compaction), facts and facts.snapshot, facts and facts.history
    )


def apply_strategy(
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


def with_strategy(
    session: TableSession, before: TableFacts | None, outcome: WriteOutcome
) -> WriteOutcome:
    """Applies the strategy if the write created the table or removed its clustering.

    Before such a write, `apply_strategy` is too early: the table does not exist, or the overwrite
    removes its clustering again. The outcome gets the strategy that was in force before the write,
    and the strategy's properties to which a person gave other values.
    Source: delta-io/delta v4.4.0, WriteIntoDelta.scala, getNewDomainMetadata.
    """
    table = session.table
    after = outcome.facts
    is_new = before is None
    had_clustering = before is not None and bool(before.snapshot.clustering_columns)
    has_clustering = after is not None and bool(after.snapshot.clustering_columns)
    if after is not None and (is_new or (had_clustering and not has_clustering)):
        after = apply_strategy(session.lake, session.spark, table, after)
    left = {} if after is None else strategy_changes(table, after).left
    strategy = strategy_in_force(table, before)
    return replace(outcome, strategy=strategy, properties_left=left, facts=after)


def strategy_changes(table: Table, facts: TableFacts) -> PropertyChanges:
    """The changes that give the table the strategy's properties, except declared properties.

    Unless the policy's mode is "automatic", the changes remove the strategy's properties.
    """
    declared = declared_properties(table)
    desired: Mapping[str, str] = {}
    if policy_for(table.layer, table.compaction).mode == "automatic":
        strategy = strategy_in_force(table, facts).strategy
        desired = strategy_properties.desired_properties(strategy)
    undeclared = {name: value for name, value in desired.items() if name not in declared}
    return strategy_properties.property_changes(facts.snapshot.properties, undeclared)


def strategy_confs(table: Table, facts: TableFacts | None) -> dict[str, str]:
    """Session settings that make Delta's auto compaction follow the table's policy.

    Empty unless the policy declares `AutoCompaction`.

    Without `autoCompact.minFileSize`, auto compaction counts files of any size as small files, its
    own outputs included, and runs more and more often. Source: delta-io/delta #4045; v4.4.0,
    `OptimisticTransaction.scala`.
    Remove this when Delta uses the same size to count small files and to select files.
    """
    policy = policy_for(table.layer, table.compaction)
    if not isinstance(policy.strategy, AutoCompaction):
        return {}
    size_bytes = 0 if facts is None else facts.snapshot.size_bytes
    history = None if facts is None else facts.history
    target_bytes = target_in_force(size_bytes, policy, write_history_of(history))
    return {
        AUTO_COMPACT_SMALLER_THAN: str(target_bytes * 3 // 4),
        AUTO_COMPACT_UP_TO: str(target_bytes),
        AUTO_COMPACT_MIN_FILES: str(policy.min_small_files),
    }


def _statements(table: Table, facts: TableFacts) -> Iterator[str]:
    """The ALTER statements that are needed, in the order of the module's steps."""
    snapshot = facts.snapshot
    declared = declared_properties(table)
    plan = compare(table, None, snapshot)
    # Checked first, because a statement below records the declared keys.
    if plan.of(Kind.LANDED_WRITE_CHANGED):
        checked(plan)
    changes = strategy_changes(table, facts)
    clustering = strategy_properties.clustering_change(
        snapshot, policy_for(table.layer, table.compaction).data_layout
    )
    desired = {**declared, **changes.set}
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
    obsolete = {*changes.unset}
    if clustering.mark is None:
        obsolete.add(CLUSTERING_MARK)
    unset = sorted(name for name in obsolete if name in existing and name not in declared)
    if unset:
        yield statements.unset_properties(snapshot.uri, unset)


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
