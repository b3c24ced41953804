"""Writes rows to a declared table: appends, replaces or merges them by key.

Without a key range, the MERGE reads the keys of the whole table, and so does the query that first
removes source rows which would change nothing. With the key range as a condition, Delta does not
open files that have no key in the range, because its statistics have the minimum and maximum of the
first columns of each file.

**Safety properties** (tests in `test_key_range.py`)
- The range is computed from exactly the rows that are merged: the server computes these rows once
  and stores them.
- A key column gives no condition if it has a null, or if Delta's statistics may order its type
  differently.
- A string column gives no condition if its minimum or maximum has a non-ASCII character. Delta's
  statistics replace bytes that are not UTF-8 by a non-ASCII character. Compared with ASCII text,
  this character sorts as the replaced bytes do. Compared with other text, it may not.

**Safety properties**
- Rows and their transaction id are one commit. Rows are not written again if the table has their
  transaction id (`materialize/test_run.py`, `land/test_run.py`).
- A table is created together with its first rows, properties and partitioning, or not at all
  (`land/test_run.py`).

The table properties and clustering that a declaration needs are set in these steps:

1. Set the properties in one commit.
2. Change the clustering.
3. Unset the mark of a clustering that is no longer declared (`declare/policies.py`).

**Safety properties**
- Nothing is committed if nothing differs: an ALTER aborts concurrent writers
  (`test_table_properties.py`).
- Properties that a person set are never unset.
- After a crash at any point, the same call ends in the same state.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.processes import late_interrupts
from lakehouse.base.reasons import Explanation
from lakehouse.compact.plan.target_size import count_outputs, target_in_force, write_history_of
from lakehouse.declare.policies import CLUSTERING_MARK, LiquidClustering, new_clustering
from lakehouse.declare.table import Merge, Table
from lakehouse.delta.columns import NewColumn
from lakehouse.delta.commits import Commits
from lakehouse.delta.log import TableFacts
from lakehouse.delta.protocol import OPTIMIZE_WRITE
from lakehouse.delta.snapshot import Column, Snapshot
from lakehouse.evolve.plan.changes import (
    CHANGE_KEYS,
    EvolutionPlan,
    Kind,
    change_keys_text,
    checked,
    compare,
)
from lakehouse.lake.lake import TableSession
from lakehouse.spark import frames, statements
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.errors import first_line
from lakehouse.spark.frames import FrameWrite, Transaction, content_hash, table_at, with_columns_of
from lakehouse.spark.statements import literal, path_table, quote
from lakehouse.write.outcome import WriteOutcome

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import ArrayType, DataType, MapType, StructType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A condition with a longer string costs more than it saves.
_LONGEST_TEXT = 200
# The types of keys for which a range gives a condition.
RANGE_TYPES = ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "string")


def with_key_range(rows: "DataFrame", keys: Sequence[str]) -> tuple["DataFrame", tuple[str, ...]]:
    """The rows, stored by the server, and SQL conditions that the keys of every row meet.

    There is at most one condition per key column (see the module's safety properties).
    """
    stored = checkpointed(rows)
    types = {field.name: field.dataType.simpleString() for field in stored.schema.fields}
    range_keys = [key for key in keys if types[key] in RANGE_TYPES]
    if not range_keys:
        return stored, ()
    ranges = list["SparkColumn"]()
    for key in range_keys:
        column = F.col(quote(key))
        null_count = F.count_if(column.isNull())
        ranges.append(F.struct(*range_ends(column, types[key]), null_count))
    [bounds] = stored.select(*ranges).collect()
    conditions = list[str]()
    for key, (least, greatest, null_count) in zip(range_keys, bounds, strict=True):
        if not null_count:
            conditions += range_condition(key, types[key], least, greatest)
    return stored, tuple(conditions)


def checkpointed(rows: "DataFrame") -> "DataFrame":
    """The rows, computed once and stored by the server.

    Over Connect, PySpark binds the stored rows to the active session, which may differ from the
    session of `rows`. This function binds them to the session of `rows`.
    Source: PySpark 4.2.0, sql/connect/conversion.py, proto_to_remote_cached_dataframe
    """
    stored: Any = rows.localCheckpoint()
    if stored.sparkSession is not rows.sparkSession:
        # PySpark has no public method for this.
        stored._session = rows.sparkSession
        stored._plan._spark_session = rows.sparkSession
    return stored


def range_ends(column: "SparkColumn", type_: str) -> "list[SparkColumn]":
    """The least and the greatest value of a column of one of the `RANGE_TYPES`.

    They are texts in bytes, which reach the client unchanged, whatever the time zone, and whichever
    bytes a string has.
    """
    ends = [F.min(column), F.max(column)]
    if type_ == "timestamp":
        ends = [F.unix_micros(end) for end in ends]
    return [end.cast("string").cast("binary") for end in ends]


def range_condition(key: str, type_: str, least: Any, greatest: Any) -> tuple[str, ...]:
    """The SQL condition that a key is between `range_ends`, with both ends included.

    Empty if all keys are null, or if no condition can use an end.
    """
    constants = [_constant(end, type_) for end in (least, greatest)]
    if None in constants:
        return ()
    return (f"{quote(key)} BETWEEN {constants[0]} AND {constants[1]}",)


def _constant(end: bytes | None, type_: str) -> str | None:
    """The end of a range as an SQL constant; `None` if no condition can use it."""
    if end is None or len(end) > _LONGEST_TEXT or not end.isascii():
        return None
    text = end.decode()
    match type_:
        case "string":
            return literal(text)
        case "date":
            return f"DATE'{text}'"
        case "timestamp":
            try:
                time = _EPOCH + timedelta(microseconds=int(text))
            except OverflowError:
                return None
            return f"TIMESTAMP'{time.isoformat()}'"
        case _:
            return text


_RANK = "_lakehouse_rank"


def merge_rows(
    rows: "DataFrame",
    snapshot: Snapshot,
    write: Merge,
    transaction: Transaction,
    *,
    are_few: bool = False,
) -> None:
    """Merges rows, one per key, into the table at `snapshot`, in one commit.

    A row that is not newer than the table's row of the same key is left out first. Otherwise, the
    MERGE would rewrite the file of the table's row without a change. With `are_few`, the rows are
    checkpointed to compute the range of their keys, and the table's files outside of this range are
    not read.
    """
    spark = rows.sparkSession
    rows = with_columns_of(spark, snapshot, rows)
    within: tuple[str, ...] = ()
    if are_few:
        rows, within = with_key_range(rows, write.keys)
    target_rows = table_at(spark, snapshot, within=within).alias("target")
    newer = statements.is_newer(write.order_by)
    changes_nothing = F.expr(f"{statements.same_keys(write.keys)} AND NOT ({newer})")
    new_rows = rows.alias("source").join(target_rows, changes_nothing, "left_anti")
    condition = statements.same_keys(write.keys, within)
    try:
        frames.run_merge(new_rows, snapshot, transaction, condition, statements.upsert(newer))
    finally:
        # Deleting checkpointed rows sends a request from a destructor, where Python would ignore an
        # interrupt.
        with late_interrupts():
            del rows, new_rows


def newest_per_key(rows: "DataFrame", write: Merge) -> "DataFrame":
    """Keeps one row per key: the row with the greatest `order_by`.

    Nulls are the least values. If several rows have the greatest value, the greatest hash of a
    row's content decides, so that a repeated call keeps the same row.
    """
    from pyspark.sql import Window

    newest_first = [F.col(statements.quote(name)).desc_nulls_last() for name in write.order_by]
    newest_first.append(content_hash(rows.schema.fields).desc())
    keys = [statements.quote(key) for key in write.keys]
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(*newest_first))
    return rows.withColumn(_RANK, rank).where(f"{_RANK} = 1").drop(_RANK)


# Types that need a table feature, by their names in Spark's simple strings.
_TYPE_FEATURES = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}


def write_rows(
    session: TableSession,
    rows: "DataFrame",
    transaction: Transaction | None = None,
    *,
    facts: TableFacts | None = None,
) -> None:
    """Writes rows in one commit, which creates the table as declared if it does not exist.

    An `Overwrite` replaces all rows. It also replaces columns and partitioning if they differ from
    the existing table (`facts`).
    """
    table = session.table
    is_overwrite = table.is_overwrite
    write = FrameWrite(
        mode="overwrite" if is_overwrite else "append",
        transaction=transaction,
        partition_by=table.partition_by,
        properties=declared_properties(table, {}),
        replaces_schema=is_overwrite and bool(differences_from(rows, table, facts)),
    )
    frames.write_frame(rows, session.lake.settings.table_uri(table.key), write)


def declared_properties(table: Table, existing: Mapping[str, str]) -> dict[str, str]:
    """The table properties that follow from a declaration; `existing` are those of the table.

    The change data feed is enabled, so that derived tables can read only changes. Tables whose runs
    replace all rows do not need it. A longer log retention of the table is only shortened if the
    declaration itself says so.
    """
    properties = dict[str, str]()
    if not table.is_overwrite:
        properties["delta.enableChangeDataFeed"] = "true"
    change_keys = change_keys_text(table)
    if change_keys is not None:
        properties[CHANGE_KEYS] = change_keys
    retention = table.vacuum.retention_properties({**existing, **table.properties})
    return {**properties, **retention, **table.properties}


def differences_from(rows: "DataFrame", table: Table, facts: TableFacts | None) -> tuple[str, ...]:
    """Describes each difference in columns and partitioning that an `Overwrite` would remove.

    Empty for a table with another write mode.
    """
    if facts is None:
        return ()
    plan = compare(table, columns_of(rows), facts.snapshot)
    return tuple(change.sentence for change in plan.of(Kind.REPLACED))


def arranged(
    frame: "DataFrame", table: Table, landed_bytes: int, row_count: int, facts: TableFacts | None
) -> "DataFrame":
    """The rows, in few tasks, because each task writes a file: by partition, or by target size."""
    if facts is not None and facts.snapshot.properties.get(OPTIMIZE_WRITE) == "true":
        return frame  # Delta arranges each batch itself
    if table.partition_by:
        return frame.repartition(*[frame[name] for name in table.partition_by])
    policy = table.compaction_policy
    files = () if facts is None else facts.snapshot.files
    size_bytes = 0 if facts is None else facts.snapshot.size_bytes
    history = Commits(table=table.key, commits=()) if facts is None else facts.history
    target_bytes = target_in_force(size_bytes, policy, write_history_of(history))
    return frame.coalesce(count_outputs(landed_bytes, row_count, files, target_bytes))


def check_columns(rows: "DataFrame", table: Table, snapshot: Snapshot | None) -> None:
    """Raises `Refused` unless the rows can be written to the table after its safe changes."""
    if snapshot is not None:
        checked(compare(table, columns_of(rows), snapshot))


def follow_declaration(
    session: TableSession, rows: "DataFrame", facts: TableFacts | None
) -> TableFacts | None:
    """Applies the safe changes of the declaration, in commits without rows. Returns the new facts.

    For an `Overwrite`, only descriptions and table features are changed, because each write
    replaces columns and rows.

    Raises:
        Refused: the table needs a change that is not safe.
    """
    if facts is None:
        return facts
    plan = checked(compare(session.table, columns_of(rows), facts.snapshot))
    changes = [*safe_statements(plan, facts.snapshot, rows)]
    for statement in changes:
        session.spark.sql(statement)
    return session.lake.facts(session.key) if changes else facts


def safe_statements(plan: EvolutionPlan, snapshot: Snapshot, rows: "DataFrame") -> Iterator[str]:
    """The statements that apply the safe changes. `rows` have the declared columns."""
    features = needed_features(columns_of(rows), snapshot)
    if features:
        yield statements.set_properties(snapshot.uri, features)
    if plan.added:
        types = {each.name: _ddl(_type_at(rows.schema, each)) for each in plan.added}
        yield statements.add_columns(snapshot.uri, plan.added, types)
    path = path_table(snapshot.uri)
    for change in plan.of(Kind.COMMENT_CHANGED):
        assert change.column is not None and change.before is not None
        comment = literal(change.column.comment)
        yield f"ALTER TABLE {path} ALTER COLUMN {quote(change.before)} COMMENT {comment}"


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
    session: TableSession,
    *,
    before: TableFacts | None,
    after: TableFacts | None,
    explanation: Explanation,
) -> WriteOutcome:
    """The outcome of the commits between two readings of a table's log."""
    version = -1 if before is None else before.snapshot.version
    commits = () if after is None else session.lake.history_since(after, version).commits
    columns_added = list[str]()
    if before is not None and after is not None:
        names_before = {column.name for column in before.snapshot.columns}
        names_after = [column.name for column in after.snapshot.columns]
        columns_added += [name for name in names_after if name not in names_before]
    return WriteOutcome(
        table=session.key,
        explanation=explanation,
        rows_written=sum(_rows_written(commit.metrics) for commit in commits),
        columns_added=tuple(columns_added),
        facts=after,
    )


def _rows_written(metrics: Mapping[str, str]) -> int:
    names = ("numOutputRows",)
    if "numTargetRowsInserted" in metrics:
        names = ("numTargetRowsInserted", "numTargetRowsUpdated")
    counts = (metrics.get(name, "0") for name in names)
    # The commits may include commits of other programs, whose metrics may contain anything.
    return sum(int(count) for count in counts if count.isdigit())


def apply_properties(session: TableSession, facts: TableFacts | None) -> TableFacts | None:
    """Applies properties and clustering, and returns the table's facts.

    The caller holds the table's lock.

    Raises:
        Refused: Delta refuses a property or the clustering; or clustering is declared, and the
            table has partitions; or the landed rows were written with another write mode or other
            keys.
    """
    from pyspark.errors import AnalysisException

    alterations = [] if facts is None else [*_statements(session.table, facts)]
    try:
        for statement in alterations:
            session.spark.sql(statement)
    except AnalysisException as error:
        raise Refused(
            f"{session.key}: Delta refuses the declared properties or clustering: "
            f"{first_line(error)}. Correct the declaration"
        ) from error
    return session.lake.facts(session.key) if alterations else facts


def _statements(table: Table, facts: TableFacts) -> Iterator[str]:
    """The ALTER statements that are needed, in the order of the module's steps."""
    snapshot = facts.snapshot
    existing = snapshot.properties
    desired = declared_properties(table, existing)
    plan = compare(table, None, snapshot)
    # Checked first, because a statement below records the declared keys.
    if plan.of(Kind.LANDED_WRITE_CHANGED):
        checked(plan)
    layout = table.compaction_policy.data_layout
    clustering = new_clustering(snapshot, layout)
    column_names = {column.name.lower() for column in snapshot.columns}
    change_keys = json.loads(desired.get(CHANGE_KEYS, "[]"))
    if not column_names.issuperset(key.lower() for key in change_keys):
        # A key is not a column of the table yet, because its rename has not been applied. The
        # recorded keys are not changed before the rename.
        del desired[CHANGE_KEYS]
    if clustering:
        desired[CLUSTERING_MARK] = ",".join(clustering)
    changed = {name: value for name, value in desired.items() if existing.get(name) != value}
    if changed:
        yield statements.set_properties(snapshot.uri, changed)
    if clustering is not None:
        yield statements.cluster_by(snapshot.uri, clustering)
    if CLUSTERING_MARK in existing and not isinstance(layout, LiquidClustering):
        path = path_table(snapshot.uri)
        yield f"ALTER TABLE {path} UNSET TBLPROPERTIES IF EXISTS ({literal(CLUSTERING_MARK)})"
