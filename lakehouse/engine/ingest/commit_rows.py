"""Writes rows to a declared table, with its declared columns and partitioning.

**Safety properties**
- Rows and their transaction id are one commit. Rows are not written again if the table has their
  transaction id (`test_write.py`, `test_load.py`).
- A table is created together with its first rows, properties and partitioning, or not at all
  (`test_load.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from lakehouse.core.compaction.target_size import count_outputs, target_in_force, write_history_of
from lakehouse.core.declaration.compaction_policy import policy_for
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, Overwrite
from lakehouse.core.delta.protocol import OPTIMIZE_WRITE
from lakehouse.core.delta.snapshot import Column, Snapshot
from lakehouse.core.evolution.column_types import NewColumn
from lakehouse.core.evolution.declaration_changes import (
    CHANGE_KEYS,
    change_keys_text,
    compare,
    differences,
)
from lakehouse.core.evolution.plan import EvolutionPlan, Kind, checked
from lakehouse.core.ingest.outcome import WriteOutcome
from lakehouse.core.reasons import Explanation
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import delta_writes, statements
from lakehouse.engine.spark.delta_writes import FrameWrite, Transaction
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

# Types that need a table feature, by their names in Spark's simple strings.
_TYPE_FEATURES = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}


def write_rows(
    lake: Lake,
    table: Table,
    rows: "DataFrame",
    transaction: Transaction | None = None,
    *,
    facts: TableFacts | None = None,
) -> None:
    """Writes rows in one commit, which creates the table as declared if it does not exist.

    An `Overwrite` replaces all rows. It also replaces columns and partitioning if they differ from
    the existing table (`facts`).
    """
    is_overwrite = isinstance(table.write, Overwrite)
    target = None if facts is None else facts.snapshot
    write = FrameWrite(
        mode="overwrite" if is_overwrite else "append",
        transaction=transaction,
        partition_by=partition_columns(table),
        properties=declared_properties(table),
        replaces_schema=is_overwrite and bool(differences_from(rows, table, target)),
    )
    delta_writes.write_frame(rows, lake.settings.table_uri(table.key), write)


def declared_properties(table: Table) -> dict[str, str]:
    """The table properties that follow from a declaration.

    The change data feed is enabled, so that derived tables can read only changes. Tables whose runs
    replace all rows do not need it.
    """
    properties = dict[str, str]()
    if not isinstance(table.write, Overwrite):
        properties["delta.enableChangeDataFeed"] = "true"
    change_keys = change_keys_text(table)
    if change_keys is not None:
        properties[CHANGE_KEYS] = change_keys
    retention = table.vacuum.retention_properties({**properties, **table.properties})
    return {**properties, **retention, **table.properties}


def differences_from(rows: "DataFrame", table: Table, target: Snapshot | None) -> tuple[str, ...]:
    """Describes each difference in columns and partitioning that an `Overwrite` would remove.

    Empty for a table with another write mode.
    """
    if target is None:
        return ()
    return differences(table, columns_of(rows), target)


def partition_columns(table: Table) -> tuple[str, ...]:
    """The declared partition columns of a table."""
    return table.write.partition_by if isinstance(table.write, Append) else ()


def arranged(
    frame: "DataFrame", table: Table, landed_bytes: int, row_count: int, facts: TableFacts | None
) -> "DataFrame":
    """The rows, in few tasks, because each task writes a file: by partition, or by target size."""
    if facts is not None and facts.snapshot.properties.get(OPTIMIZE_WRITE) == "true":
        return frame  # Delta arranges each batch itself
    partition_by = partition_columns(table)
    if partition_by:
        return frame.repartition(*[frame[name] for name in partition_by])
    policy = policy_for(table.layer, table.compaction)
    files = () if facts is None else facts.snapshot.files
    size_bytes = 0 if facts is None else facts.snapshot.size_bytes
    history = None if facts is None else facts.history
    target_bytes = target_in_force(size_bytes, policy, write_history_of(history))
    return frame.coalesce(count_outputs(landed_bytes, row_count, files, target_bytes))


def check_columns(rows: "DataFrame", table: Table, snapshot: Snapshot | None) -> None:
    """Raises `Refused` unless the rows can be written to the table after its safe changes."""
    if snapshot is not None:
        checked(compare(table, columns_of(rows), snapshot))


def follow_declaration(
    lake: Lake, spark: "SparkSession", table: Table, rows: "DataFrame", facts: TableFacts | None
) -> TableFacts | None:
    """Applies the safe changes of the declaration, in commits without rows. Returns the new facts.

    For an `Overwrite`, only descriptions and table features are changed, because each write
    replaces columns and rows.

    Raises:
        Refused: the table needs a change that is not safe.
    """
    if facts is None:
        return facts
    plan = checked(compare(table, columns_of(rows), facts.snapshot))
    changes = [*safe_statements(plan, facts.snapshot, rows)]
    for statement in changes:
        spark.sql(statement)
    return lake.facts(table.key) if changes else facts


def safe_statements(plan: EvolutionPlan, snapshot: Snapshot, rows: "DataFrame") -> Iterator[str]:
    """The statements that apply the safe changes. `rows` have the declared columns."""
    features = needed_features(columns_of(rows), snapshot)
    if features:
        yield statements.set_properties(snapshot.uri, features)
    if plan.added:
        types = {each.name: _ddl(_type_at(rows.schema, each)) for each in plan.added}
        yield statements.add_columns(snapshot.uri, plan.added, types)
    for change in plan.of(Kind.COMMENT_CHANGED):
        assert change.column is not None and change.before is not None
        yield statements.comment_on_column(snapshot.uri, change.before, change.column.comment)


def needed_features(columns: Sequence[Column], snapshot: Snapshot) -> dict[str, str]:
    """The properties that enable the table features that these column types need.

    Delta itself enables them only in a new table. Source: delta-io/delta v4.4.0,
    TableFeature.scala, `FeatureAutomaticallyEnabledByMetadata`.
    """
    needed = set[str]()
    for type_name, feature in _TYPE_FEATURES.items():
        if any(type_name in column.type for column in columns):
            needed.add(feature)
    return {f"delta.feature.{name}": "supported" for name in sorted(needed - snapshot.features)}


def columns_of(rows: "DataFrame") -> tuple[Column, ...]:
    """The columns of the rows, with the comments of their declaration."""
    return tuple(
        Column(
            name=field.name,
            type=field.dataType.simpleString(),
            comment=str((field.metadata or {}).get("comment", "")),
        )
        for field in rows.schema.fields
    )


def _type_at(schema: "StructType", new: NewColumn) -> "DataType":
    """The type of a new column, or of a new member of a struct."""
    type_: Any = schema
    for name in (*new.parent, new.column.name):
        match type_.typeName():
            case "struct":
                names = {each.lower(): each for each in type_.fieldNames()}
                type_ = type_[names[name.lower()]].dataType
            case "array":
                type_ = type_.elementType
            case _:
                type_ = type_.valueType
    return type_


def _ddl(type_: "DataType") -> str:
    """A type as DDL, with quoted names of struct members."""
    match type_.jsonValue():
        case {"type": "struct"}:
            members = cast("StructType", type_).fields
            fields = [f"{quote(each.name)}: {_ddl(each.dataType)}" for each in members]
            return f"STRUCT<{', '.join(fields)}>"
        case {"type": "array"}:
            return f"ARRAY<{_ddl(cast('ArrayType', type_).elementType)}>"
        case {"type": "map"}:
            key = cast("MapType", type_).keyType
            value = cast("MapType", type_).valueType
            return f"MAP<{_ddl(key)}, {_ddl(value)}>"
        case _:
            return type_.simpleString()


def outcome_of(
    lake: Lake,
    table: Table,
    *,
    before: TableFacts | None,
    after: TableFacts | None,
    explanation: Explanation,
) -> WriteOutcome:
    """The outcome of the commits between two readings of a table's log."""
    version = -1 if before is None else before.snapshot.version
    commits = () if after is None else history_since(lake.store, after.history, version).commits
    return WriteOutcome(
        table=table.key,
        explanation=explanation,
        rows_written=sum(_rows_written(commit.metrics) for commit in commits),
        columns_added=_added_between(before, after),
        facts=after,
    )


def _added_between(before: TableFacts | None, after: TableFacts | None) -> tuple[str, ...]:
    if before is None or after is None:
        return ()
    names_before = {column.name for column in before.snapshot.columns}
    return tuple(each.name for each in after.snapshot.columns if each.name not in names_before)


def _rows_written(metrics: Mapping[str, str]) -> int:
    names = ("numOutputRows",)
    if "numTargetRowsInserted" in metrics:
        names = ("numTargetRowsInserted", "numTargetRowsUpdated")
    counts = (metrics.get(name, "0") for name in names)
    # The commits may include commits of other programs, whose metrics may contain anything.
    return sum(int(count) for count in counts if count.isdigit())
