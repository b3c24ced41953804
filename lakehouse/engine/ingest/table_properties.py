"""The properties and clustering that a table's declaration and strategy need, set and taken back.

1. Properties are set, those of the strategy together with the mark that says so, in one commit.
2. Then the clustering is changed, and then what is no longer wanted is unset.

**Safety properties**
- Nothing is committed if nothing differs: an ALTER aborts concurrent writers
  (`test_table_properties.py`).
- Properties that a person set are never taken back (`long/test_strategy.py`).
- After a crash at any point, the same call ends in the same state.
"""

import json
from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

from lakehouse.core.compaction.target_size import target_in_force, write_history_of
from lakehouse.core.declaration import strategy_properties
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.schema_changes import UNCHANGED
from lakehouse.core.declaration.strategies import AutoCompaction
from lakehouse.core.declaration.strategy_properties import CLUSTERING_MARK, PropertyChanges
from lakehouse.core.declaration.table import History, Merge, Overwrite, Table
from lakehouse.core.declaration.vacuum_policy import (
    DEFAULT_LOG_DAYS,
    DEFAULT_LOG_RETENTION,
    LOG_RETENTION,
)
from lakehouse.core.delta.protocol import span_ms_of
from lakehouse.core.errors import Refused
from lakehouse.core.scheduling.strategy_selection import StrategyChoice, strategy_of
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.errors import first_line
from lakehouse.engine.spark.session_settings import (
    AUTO_COMPACT_MIN_FILES,
    AUTO_COMPACT_SMALLER_THAN,
    AUTO_COMPACT_UP_TO,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARE_DAYS = 7
# The keys that change data was merged by.
CHANGE_KEYS = "lakehouse.changeKeys"


def strategy_in_force(table: Table, facts: TableFacts | None) -> StrategyChoice:
    """The table's strategy, never `Chosen`, and why; without `facts` there is no table yet."""
    return strategy_of(
        policy_for(table.layer, table.compaction), facts and facts.snapshot, facts and facts.history
    )


def apply_strategy(
    lake: Lake, spark: "SparkSession", table: Table, facts: TableFacts | None
) -> TableFacts | None:
    """The table's facts once it has what its declaration and its strategy need; the caller holds the table's guard.

    Raises:
        Refused: Delta does not cluster this table by these columns, or its change data was merged by other keys.
    """
    from pyspark.errors import AnalysisException

    sent = [] if facts is None else [*_statements(table, facts)]
    try:
        for statement in sent:
            spark.sql(statement)
    except AnalysisException as error:
        raise Refused(
            f"{table.key}: Delta refuses what its declaration asks for: {first_line(error)}"
        ) from error
    return lake.facts(table.key) if sent else facts


def strategy_changes(table: Table, facts: TableFacts) -> PropertyChanges:
    """The properties that the strategy in force would still change; the declaration's own properties go before it."""
    is_automatic, declared = (
        policy_for(table.layer, table.compaction).mode == "automatic",
        declared_properties(table),
    )
    desired = (
        strategy_properties.desired_properties(strategy_in_force(table, facts).strategy)
        if is_automatic
        else {}
    )
    undeclared = {name: value for name, value in desired.items() if name not in declared}
    return strategy_properties.property_changes(facts.snapshot.properties, undeclared)


def strategy_confs(table: Table, facts: TableFacts | None) -> dict[str, str]:
    """Settings of a session that writes the table under which Delta's auto compaction keeps to the policy.

    Without a lower size it counts the files that it wrote itself, and so runs ever more often. Source: delta-io/delta #4045; v4.4.0,
    `OptimisticTransaction.scala`. Exit: when a release counts by the size that it selects by.
    """
    policy = policy_for(table.layer, table.compaction)
    if not isinstance(policy.strategy, AutoCompaction):
        return {}
    size_bytes, history = (0, None) if facts is None else (facts.snapshot.size_bytes, facts.history)
    target_bytes = target_in_force(size_bytes, policy, write_history_of(history))
    return {
        AUTO_COMPACT_SMALLER_THAN: str(target_bytes * 3 // 4),
        AUTO_COMPACT_UP_TO: str(target_bytes),
        AUTO_COMPACT_MIN_FILES: str(policy.min_small_files),
    }


def declared_properties(table: Table) -> dict[str, str]:
    """The properties that a table has by its declaration; its changes can be read downstream unless each run replaces all of it."""
    base = {} if isinstance(table.write, Overwrite) else {"delta.enableChangeDataFeed": "true"}
    if (
        table.source is not None
        and table.source.changes is not None
        and isinstance(table.write, Merge | History)
    ):
        base[CHANGE_KEYS] = json.dumps(sorted(table.write.keys))
    if table.source is not None and table.source.after_load != "keep":
        # A file goes only while the log tells all that happened since its batch, which takes as long as it stays, and some days.
        base[LOG_RETENTION] = (
            f"interval {max(ceil(table.source.keep_days) + _SPARE_DAYS, DEFAULT_LOG_DAYS)} days"
        )
    return {
        **base,
        **table.vacuum.properties_beside({**base, **table.properties}),
        **table.properties,
    }


def _statements(table: Table, facts: TableFacts) -> Iterator[str]:
    snapshot, declared = facts.snapshot, declared_properties(table)
    if (was := snapshot.properties.get(CHANGE_KEYS)) is not None and was != (
        now := declared.get(CHANGE_KEYS, was)
    ):
        raise Refused(
            f"write of {table.key}: it is declared with the keys {now}, and its rows were merged by {was}: some would be there twice. "
            f"{UNCHANGED}"
        )
    changes = strategy_changes(table, facts)
    clustering = strategy_properties.clustering_change(
        snapshot, policy_for(table.layer, table.compaction).data_layout
    )
    wanted = {
        **declared,
        **changes.set,
        **({} if clustering.mark is None else {CLUSTERING_MARK: clustering.mark}),
    }
    there = snapshot.properties
    if LOG_RETENTION not in table.properties and _is_longer(
        there.get(LOG_RETENTION), wanted.get(LOG_RETENTION)
    ):
        del wanted[LOG_RETENTION]
    if missing := {name: value for name, value in wanted.items() if there.get(name) != value}:
        yield statements.set_properties(snapshot.uri, missing)
    if clustering.columns is not None:
        yield statements.cluster_by(snapshot.uri, clustering.columns)
    gone = {*changes.unset, *([CLUSTERING_MARK] if clustering.mark is None else [])}
    if unset := sorted(
        name for name in gone if name in snapshot.properties and name not in declared
    ):
        yield statements.unset_properties(snapshot.uri, unset)


def _is_longer(there: str | None, wanted: str | None) -> bool:
    """Whether the log is kept for longer than is wanted: a person set that, or nobody and Delta's default holds."""
    if wanted is None:
        return False
    there_ms, wanted_ms = (span_ms_of(span or DEFAULT_LOG_RETENTION) for span in (there, wanted))
    return there_ms is not None and wanted_ms is not None and there_ms >= wanted_ms
