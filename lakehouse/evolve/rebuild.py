"""Rebuilds a table: writes all its rows again, and replaces them in one commit.

1. Take the table's lock. Delete the staged rows of a killed rebuild.
2. Read the log at its newest version V. For a rebuild from own rows, read the rows once to count
   the values that a cast would change, and to sum a hash of every row. Make the plan. A dry run
   ends here.
3. Copy the log of V next to the table (`stage_log`). Replace rows, columns and partitioning of
   this copy in one overwrite: either with the rows of V under the new columns, or with the
   transform of all inputs at their newest versions. The commit records V, whether the rows are the
   same and, for a rebuild from inputs, the consumed versions.
4. Check the staged rows: own rows against the sums of step 2. Rows from inputs may not be empty,
   unless the inputs or the table are.
5. Copy the staged files into the table, and create the staged versions in its log: V + 1 and, if
   commits without rows come first, the ones after it, up to the overwrite. Each is created only if
   it does not exist.
6. Apply properties and clustering again, and delete the staged rows.

**Safety properties** (tests in `test_rebuild.py`)
- Readers see the old or the new rows, also after a run was killed. The next run starts again.
- A rebuild loses no row of another writer, and brings no archived row back: it commits only after
  the version that it read. If another writer committed first, it ends without a change.
- A rebuild from own rows changes values only by casts that are exact for every row: the staged
  rows, cast back to the earlier types, must equal the rows of version V.
- Nothing is loaded or consumed twice: an overwrite keeps all transaction ids, and the commit with
  the rows also records the version of the first input from which they were computed.
- Only staged rows are deleted. Files of earlier versions stay for time travel.

The staged table is a copy of the table's log at one version, without data files, in
`_lakehouse/rebuilds/<layer>/<name>/<id>/`. Spark overwrites it, so that its next versions are those
that the table gets. Each rebuild uses a new folder. The next rebuild deletes the folder of a killed
rebuild.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.frozen import frozen
from lakehouse.base.text import Document, count_of
from lakehouse.declare.table import Append, Merge, Table
from lakehouse.delta.columns import converted
from lakehouse.delta.commits import REBUILD, Commit, is_news
from lakehouse.delta.log import TableFacts, newest_first
from lakehouse.delta.log.log_segment import find_segment, log_folder
from lakehouse.delta.snapshot import Column as TableColumn
from lakehouse.delta.snapshot import Snapshot
from lakehouse.evolve.plan.rebuild import (
    ColumnSource,
    RebuildOutcome,
    RebuildPlan,
    RebuildRequest,
    rebuild_plan,
    refuse_impossible,
    refuse_inexact_casts,
)
from lakehouse.lake.commits import with_due_checkpoint
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.lake.lease import hold
from lakehouse.materialize import plan as derived_increments
from lakehouse.materialize.plan import KEYS, code_record
from lakehouse.materialize.run import (
    archived_bytes,
    check_has_columns,
    facts_of_inputs,
    history_since_consumed,
    read_by_increment,
    read_by_overwrite,
    transformed,
)
from lakehouse.spark import frames, statements
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.errors import first_line, translated
from lakehouse.spark.frames import FrameWrite, Transaction, content_hash, table_at
from lakehouse.spark.statements import quote
from lakehouse.spark.temporary_confs import (
    ANSI,
    SHUFFLED_BEFORE_WRITE,
    session_confs,
)
from lakehouse.store import at_once
from lakehouse.write.commit_rows import (
    apply_properties,
    columns_of,
    needed_features,
    newest_per_key,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_FOLDER = "_lakehouse/rebuilds"
# Spark cannot compare values of these types, so their JSON texts are compared.
_NOT_COMPARABLE = ("map<", "variant")
# Derived columns are computed as in a load, and a sum of hashes may overflow.
_OWN_ROWS_CONFS = {ANSI: "false"}


@frozen
class RowSums:
    """The number of rows, and the sum of their hashes (`checksum`).

    `inexact` is the number of rows with a value that a cast would change, by source column.
    """

    row_count: int
    checksum: int
    inexact: Mapping[str, int]


@frozen
class PlannedRebuild:
    """A planned rebuild, and the facts behind it.

    `sums` are the sums of the table's rows, for a rebuild from own rows. `with_archive`: the first
    input has an archive, which an `Append` or `Merge` reads, too.
    """

    session: TableSession
    facts: TableFacts
    plan: RebuildPlan
    inputs: Mapping[str, TableFacts] = {}
    with_archive: bool = False
    sums: RowSums | None = None


@translated()
def plan_rebuild(
    session: TableSession, request: RebuildRequest, tables: Iterable[Table]
) -> PlannedRebuild:
    """Plans a rebuild of the newest version. Nothing is written.

    For a rebuild from own rows, all rows are read once. `tables` are all declared tables.

    Raises:
        Refused: there is no table, its rows were written in another way than declared, or the
            rebuild is impossible, inexact, or too early for an `Append` downstream.
    """
    lake = session.lake
    table = session.table
    facts = lake.existing_facts(table.key, "rebuild:")
    refuse_impossible(request, facts.snapshot)
    if archived_bytes(lake, facts):
        raise Refused(
            f"rebuild of {table.key}: partitions of it are in its archive, and would not be part of"
            f" the result. Use `lakehouse restore {table.key}` first"
        )
    if request.columns and table.inputs and not table.is_overwrite:
        derived_increments.check_written_alike(table, newest_first(lake.store, facts.history))
    inputs = {} if request.columns else facts_of_inputs(lake, table)
    input_bytes = sum(each.snapshot.size_bytes for each in inputs.values())
    from_archive = 0
    if inputs and not table.is_overwrite:
        from_archive = archived_bytes(lake, inputs[table.inputs[0].key])
    readers = [each for each in tables if any(read.key == table.key for read in each.inputs)]
    waiting = [*_waiting(lake, facts, readers)]
    plan = rebuild_plan(request, facts, readers, waiting, input_bytes=input_bytes + from_archive)
    rebuild = PlannedRebuild(
        session=session,
        facts=facts,
        plan=plan,
        inputs=inputs,
        with_archive=from_archive > 0,
    )
    if not plan.columns:
        return rebuild
    with session_confs(session.spark, _OWN_ROWS_CONFS):
        sums = sums_of_own_rows(table_at(session.spark, facts.snapshot), plan)
    refuse_inexact_casts(table, plan.columns, sums.inexact)
    return replace(rebuild, plan=replace(plan, row_count=sums.row_count), sums=sums)


def _waiting(lake: Lake, facts: TableFacts, readers: Iterable[Table]) -> Iterator[str]:
    """The keys of each `Append` that follows the table, and has not read all its changes yet.

    A table that has consumed none of its versions does not wait.
    """
    key = facts.snapshot.table
    for reader in readers:
        # A table reads the changes of its first input, and all rows of its other inputs.
        if not isinstance(reader.write, Append) or reader.inputs[0].key != key:
            continue
        reader_facts = lake.facts(reader.key)
        transactions = {} if reader_facts is None else reader_facts.snapshot.transactions
        consumed = transactions.get(derived_increments.consume_app_id(facts.snapshot))
        if consumed is not None:
            history = lake.history_since(facts, consumed)
            if any(map(is_news, history.commits)):
                yield reader.key


def run_rebuild(
    session: TableSession,
    request: RebuildRequest,
    tables: Iterable[Table] = (),
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> RebuildOutcome:
    """Rebuilds a table. `tables` are all declared tables; `tell` is called before each long step.

    Raises:
        Refused: there is no table, or the rebuild could not be exact.
        Transient: another process holds the table's lock, or another writer committed first.
        Broken: the staged rows are wrong.
    """
    lake = session.lake
    spark = session.spark
    key = session.key
    started = time.monotonic()
    with hold(lake, spark, key, owner=f"rebuild of {key}"), translated():
        forget_staged(lake, key)
        tell(f"{key}: reading the rows")
        rebuild = plan_rebuild(session, request, tables)
        tell(f"{key}: {rebuild.plan.sentence}")
        mark = uuid4().hex
        snapshot = rebuild.facts.snapshot
        with session_confs(spark, _OWN_ROWS_CONFS if rebuild.plan.columns else {}):
            staged = stage_log(lake, snapshot)
            uri = lake.settings.table_uri(staged)
            _replace_rows(rebuild, uri, mark)
            tell(f"{key}: comparing the rows that were written next to the table")
            row_count = _check_staged(rebuild, spark.read.format("delta").load(uri))
        tell(f"{key}: replacing the table's rows")
        commit = commit_staged(lake, snapshot, staged, mark)
        apply_properties(session, with_due_checkpoint(lake, lake.existing_facts(key)))
        forget_staged(lake, key)
    return RebuildOutcome(
        plan=rebuild.plan,
        version_after=commit.version,
        row_count=row_count,
        bytes_written=commit.added_bytes,
        seconds=time.monotonic() - started,
    )


def _check_staged(rebuild: PlannedRebuild, staged: "DataFrame") -> int:
    """Step 4: checks the staged rows. Returns their number.

    Own rows, cast back, must equal the table's existing rows, except derived columns, which are
    computed where they are null.

    Raises:
        Broken: the rows of a rebuild from own rows have changed.
        Refused: the transform returns no rows, although the inputs and the table have rows.
    """
    key = rebuild.session.key
    snapshot = rebuild.facts.snapshot
    expected = rebuild.sums
    if expected is None:
        first = rebuild.inputs[rebuild.session.table.inputs[0].key].snapshot
        may_be_empty = not first.file_count or not snapshot.file_count
        row_count = staged.count()
        if not row_count and not may_be_empty:
            raise Refused(
                f"rebuild of {key}: its transform returns no rows, but its inputs have rows. The"
                " table was not changed. Correct the transform"
            )
        return row_count
    original = list["Column"]()
    for column, source in _unchanged(rebuild.plan.columns):
        value = converted(quote(column.name), column.type, source.type)
        original.append(F.expr(value).alias(source.name))
    sums = _sums(staged.select(*original), {})
    if (sums.row_count, sums.checksum) != (expected.row_count, expected.checksum):
        raise Broken(
            f"rebuild of {key}: the rows that were written next to it differ from the rows of"
            f" version {snapshot.version}: {count_of(sums.row_count, 'row')} (checksum"
            f" {sums.checksum}) instead of {expected.row_count} (checksum {expected.checksum})."
            " The table was not changed. Run the rebuild again"
        )
    return sums.row_count


def _replace_rows(rebuild: PlannedRebuild, uri: str, mark: str) -> None:
    """Step 3: replaces rows, columns and partitioning of the staged table at `uri` in one commit.

    Commits without rows come first, if the table needs other properties or must lose its
    clustering.
    """
    session = rebuild.session
    table = session.table
    plan = rebuild.plan
    snapshot = rebuild.facts.snapshot
    if rebuild.plan.source == "rows":
        rows = rebuilt_rows(table_at(session.spark, snapshot), plan.columns)
    else:
        rows = transformed(session, rebuild.inputs, with_archive=rebuild.with_archive)
        check_has_columns(table, rows)
        if table.merge:
            rows = newest_per_key(rows, table.merge)
    transaction, record_of_inputs = _record(rebuild)
    record = {
        "from": snapshot.version,
        "rows": plan.rows,
        "mark": mark,
        "seconds": plan.seconds,
        "usd": plan.usd,
    }
    write = FrameWrite(
        mode="overwrite",
        replaces_schema=True,
        transaction=transaction,
        partition_by=plan.partition_by,
        user_metadata=json.dumps({REBUILD: record, **record_of_inputs}),
    )
    # Delta does not allow a table to be both clustered and partitioned.
    if snapshot.clustering_columns and plan.partition_by:
        session.spark.sql(statements.cluster_by(uri, ()))
    properties = needed_features(columns_of(rows), snapshot)
    if snapshot.physical_names and not table.is_overwrite:
        # With column mapping, Delta replaces no columns while the feed is on. Step 6 sets it again.
        properties["delta.enableChangeDataFeed"] = "false"
    if properties:
        session.spark.sql(statements.set_properties(uri, properties))
    # A shuffle before the write gives few large files, also for many partitions.
    with session_confs(session.spark, {SHUFFLED_BEFORE_WRITE: "true"}):
        frames.write_frame(rows, uri, write)


def _record(rebuild: PlannedRebuild) -> tuple[Transaction | None, Document]:
    """The transaction id of the consumed version, and what the commit records about inputs.

    There is no transaction id for a version that was consumed before, because Delta silently skips
    a write with a version that is not newer than the recorded version.
    """
    session = rebuild.session
    table = rebuild.session.table
    is_incremental = isinstance(table.write, Append | Merge) and bool(table.inputs)
    if rebuild.plan.source == "rows":
        return None, {KEYS: derived_increments.merge_keys(table)} if is_incremental else {}
    code = code_record(table.transform_code)
    if not is_incremental:
        return None, {**read_by_overwrite(rebuild.inputs), **code}
    first = rebuild.inputs[table.inputs[0].key]
    version = first.snapshot.version
    record = {**read_by_increment(table, first, version), **code}
    app_id = derived_increments.consume_app_id(first.snapshot)
    consumed = rebuild.facts.snapshot.transactions.get(app_id)
    if consumed is not None and consumed >= version:
        history_since_consumed(session.lake, table, first, rebuild.facts, consumed)
        return None, record
    return Transaction(app_id=app_id, version=version), record


def sums_of_own_rows(frame: "DataFrame", plan: RebuildPlan) -> RowSums:
    """The sums of a table's existing rows, over the columns that the rebuild keeps, in one pass.

    Raises:
        Refused: Spark has no cast between two of the types.
    """
    from pyspark.errors import AnalysisException

    inexact_counts = dict[str, "Column"]()
    for each in plan.columns:
        if each.source is None:
            continue
        old_type = each.source.type
        new_type = each.column.type
        value = quote(each.source.name)
        if each.is_cast:
            cast_back = converted(converted(value, old_type, new_type), new_type, old_type)
            if any(name in old_type for name in _NOT_COMPARABLE):
                value = f"to_json(struct({value} AS v))"
                cast_back = f"to_json(struct({cast_back} AS v))"
            inexact_counts[each.source.name] = F.count_if(F.expr(f"NOT ({value} <=> {cast_back})"))
        elif new_type == "string" and each.column.name in plan.partition_by:
            # Spark writes an empty text as null.
            inexact_counts[each.source.name] = F.count_if(F.expr(f"{value} = ''"))
    try:
        kept_columns = [quote(source.name) for _, source in _unchanged(plan.columns)]
        return _sums(frame.select(*kept_columns), inexact_counts)
    except AnalysisException as error:
        raise Refused(
            f"rebuild of {plan.table}: Spark refuses a cast: {first_line(error)}. Use another type"
        ) from error


def rebuilt_rows(frame: "DataFrame", columns: Sequence[ColumnSource]) -> "DataFrame":
    """The rows of a table with other names, types or descriptions of columns.

    A derived column is computed in the rows where it is null. Values that it has do not change.
    """

    def value(each: ColumnSource) -> "Column":
        name = each.column.name
        metadata = {"comment": each.column.comment}
        if each.source is None:
            return F.expr(f"CAST(NULL AS {each.column.type})").alias(name, metadata=metadata)
        value = converted(quote(each.source.name), each.source.type, each.column.type)
        if not each.is_cast and each.column.comment == each.source.comment:
            return F.expr(value).alias(name)
        return F.expr(value).alias(name, metadata=metadata)

    rows = frame.select(*map(value, columns))
    filled = dict[str, "Column"]()
    for each in columns:
        if each.expression:
            name = quote(each.column.name)
            computed = f"coalesce({name}, CAST({each.expression} AS {each.column.type}))"
            filled[each.column.name] = F.expr(computed)
    return rows.withColumns(filled) if filled else rows


def stage_log(lake: Lake, snapshot: Snapshot) -> str:
    """Copies the log of a version, and returns the staged table's folder."""
    log = log_folder(snapshot.table)
    listing = lake.store.list(log.rstrip("/"))
    # Spark also needs the commit of a checkpoint that is the newest file.
    version = snapshot.version
    segment = find_segment(listing, snapshot.table, version=version, newest_commits=1)
    assert segment is not None  # the snapshot was read from it
    sidecars = [file for file in listing if file.name.startswith(f"{log}_sidecars/")]
    folder = f"{_folder(snapshot.table)}/{uuid4().hex}"
    for file in (*sidecars, *segment.checkpoint, *segment.commits):
        lake.store.copy(file, log_folder(folder) + file.name.removeprefix(log))
    return folder


def commit_staged(lake: Lake, snapshot: Snapshot, folder: str, mark: str) -> Commit:
    """Copies the staged files into the table, and creates the staged versions in its log.

    Returns the last one: the overwrite, whose metadata contains `mark`. Delta may have
    compacted the staged table after it (`delta.autoOptimize.autoCompact`). That version is left
    out: if another writer created its number first, the files of the overwrite would be live.

    Raises:
        Transient: another writer created one of these versions first.
    """
    key = snapshot.table
    store = lake.store
    history = lake.history_since(lake.existing_facts(folder), snapshot.version)
    overwrite = history.marked(mark)
    assert overwrite is not None
    commits = [each for each in history.commits if each.version <= overwrite.version]
    files = {file.name: file for file in store.list(folder)}
    names = [unquote(path) for commit in commits for path in commit.added_paths]

    def copy(name: str) -> None:
        store.copy(files[f"{folder}/{name}"], f"{key}/{name}")

    at_once(copy, names)
    for commit in commits:
        name = f"{commit.version:020}.json"
        content = store.read(log_folder(folder) + name)
        if not store.put_if_absent(log_folder(key) + name, content):
            store.delete([f"{key}/{each}" for each in names])
            raise Transient(
                f"rebuild of {key}: another writer created version {commit.version} first. The"
                " table's rows were not replaced. Use the same command again"
            )
    return overwrite


def forget_staged(lake: Lake, table_key: str) -> None:
    """Deletes all rows that rebuilds of a table have staged. The caller holds its lock."""
    lake.store.delete([file.name for file in lake.store.list(_folder(table_key))])


def _folder(table_key: str) -> str:
    return f"{_FOLDER}/{table_key}"


def _unchanged(columns: Sequence[ColumnSource]) -> list[tuple[TableColumn, TableColumn]]:
    """The columns whose values stay as they are, each with its source."""
    return [
        (each.column, each.source)
        for each in columns
        if each.source is not None and not each.expression
    ]


def _sums(frame: "DataFrame", inexact_counts: "Mapping[str, Column]") -> RowSums:
    """The sums of the rows of a frame. The sum of the hashes is that of its last 64 bits."""
    checksum = F.sum(content_hash(frame.schema.fields))
    [row] = frame.agg(F.count(F.lit(1)), checksum, *inexact_counts.values()).collect()
    row_count, hash_sum, *counts = row
    inexact = dict(zip(inexact_counts, counts, strict=True))
    return RowSums(row_count=row_count, checksum=hash_sum or 0, inexact=inexact)
