"""The rows of a rebuild, written next to the table and compared before they replace its rows.

The staged table is a copy of the table's log at one version, without data files, in
`_lakehouse/rebuilds/<layer>/<name>/<id>/`. Spark overwrites it, so that its next versions are those
that the table gets. Each rebuild uses a new folder. The next rebuild deletes the folder of a killed
rebuild.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote
from uuid import uuid4

from lakehouse.base.errors import Broken, Refused, Transient
from lakehouse.base.text import count_of
from lakehouse.delta.columns import converted
from lakehouse.delta.log import history_since
from lakehouse.delta.log.log_segment import find_segment, log_folder
from lakehouse.delta.snapshot import Snapshot
from lakehouse.evolve.plan.rebuild import ColumnSource, is_cast
from lakehouse.lake.lake import Lake
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.errors import first_line
from lakehouse.spark.frames import content_hash
from lakehouse.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FOLDER = "_lakehouse/rebuilds"
_REQUESTS_AT_ONCE = 16
_COUNT = "row_count"
_HIGH = "high"
_LOW = "low"
# Spark cannot compare values of these types, so their JSON texts are compared.
_NOT_COMPARABLE = ("map<", "variant")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSums:
    """The number of rows, and the sum of their hashes (`checksum`).

    `inexact` is the number of rows with a value that a cast would change, by source column.
    """

    row_count: int
    checksum: int
    inexact: Mapping[str, int]


def sums_of_own_rows(
    frame: "DataFrame", columns: Sequence[ColumnSource], snapshot: Snapshot
) -> RowSums:
    """The sums of a table's existing rows, over the columns that the rebuild keeps, in one pass.

    Raises:
        Refused: Spark has no cast between two of the types.
    """
    from pyspark.errors import AnalysisException

    types = _types(snapshot)
    inexact_counts = dict[str, "Column"]()
    for each in columns:
        if each.source is not None and is_cast(each, snapshot):
            changes = F.expr(_is_changed(each.source, types[each.source], each.column.type))
            inexact_counts[each.source] = F.count_if(changes)
    try:
        kept_columns = frame.select(*[quote(name) for name in _sources(columns)])
        return _sums(kept_columns, inexact_counts)
    except AnalysisException as error:
        raise Refused(
            f"rebuild of {snapshot.table}: Spark refuses a cast: {first_line(error)}. Use another "
            "type"
        ) from error


def rebuilt_rows(
    frame: "DataFrame", columns: Sequence[ColumnSource], snapshot: Snapshot
) -> "DataFrame":
    """The rows of a table with other names, types or descriptions of columns.

    A derived column is computed in the rows where it is null. Values that it has do not change.
    """
    existing = {column.name: column for column in snapshot.columns}

    def value(each: ColumnSource) -> "Column":
        name = each.column.name
        type_ = each.column.type
        metadata = {"comment": each.column.comment}
        if each.source is None:
            return F.expr(f"CAST(NULL AS {type_})").alias(name, metadata=metadata)
        source = quote(each.source)
        if is_cast(each, snapshot):
            value = converted(source, existing[each.source].type, type_)
            return F.expr(value).alias(name, metadata=metadata)
        if each.column.comment == existing[each.source].comment:
            return F.col(source).alias(name)
        return F.col(source).alias(name, metadata=metadata)

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


def commit_staged(lake: Lake, snapshot: Snapshot, folder: str, mark: str) -> None:
    """Copies the staged files into the table, and creates the staged versions in its log.

    The last version is that of the overwrite, whose metadata contains `mark`. Delta may have
    compacted the staged table after it (`delta.autoOptimize.autoCompact`). That version is left
    out: if another writer created its number first, the files of the overwrite would be live.

    Raises:
        Transient: another writer created one of these versions first.
    """
    key = snapshot.table
    store = lake.store
    staged = lake.facts(folder)
    assert staged is not None
    history = history_since(store, staged.history, snapshot.version)
    [overwrite] = history.marked(mark)
    commits = [each for each in history.commits if each.version <= overwrite.version]
    files = {file.name: file for file in store.list(folder)}
    names = [unquote(path) for commit in commits for path in commit.added_paths]

    def copy(name: str) -> None:
        store.copy(files[f"{folder}/{name}"], f"{key}/{name}")

    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as pool:
        list(pool.map(copy, names))
    for commit in commits:
        name = f"{commit.version:020}.json"
        content = store.read(log_folder(folder) + name)
        if not store.put_if_absent(log_folder(key) + name, content):
            store.delete([f"{key}/{each}" for each in names])
            raise Transient(
                f"rebuild of {key}: another writer created version {commit.version} first. The"
                " table's rows were not replaced. Use the same command again"
            )


def check_own_rows(
    staged: "DataFrame", columns: Sequence[ColumnSource], snapshot: Snapshot, expected: RowSums
) -> None:
    """Raises `Broken` unless the staged rows, cast back, equal the table's existing rows.

    Derived columns are not compared, since they are computed where they are null.
    """
    types = _types(snapshot)
    # If several columns have the same source, the first one is compared.
    by_source = {each.source: each for each in reversed(columns) if each.source is not None}
    original = list["Column"]()
    for name in _sources(columns):
        staged_name = quote(by_source[name].column.name)
        if is_cast(by_source[name], snapshot):
            type_ = by_source[name].column.type
            column = F.expr(converted(staged_name, type_, types[name]))
        else:
            column = F.col(staged_name)
        original.append(column.alias(name))
    sums = _sums(staged.select(*original), {})
    if (sums.row_count, sums.checksum) != (expected.row_count, expected.checksum):
        raise Broken(
            f"rebuild of {snapshot.table}: the rows that were written next to it differ from the "
            f"rows of version {snapshot.version}: {count_of(sums.row_count, 'row')} (checksum "
            f"{sums.checksum}) instead of {expected.row_count} (checksum {expected.checksum}). "
            "The table was not changed. Run the rebuild again"
        )


def forget_staged(lake: Lake, table_key: str) -> None:
    """Deletes all rows that rebuilds of a table have staged. The caller holds its lock."""
    names = [file.name for file in lake.store.list(_folder(table_key))]
    if names:
        lake.store.delete(names)


def _folder(table_key: str) -> str:
    return f"{_FOLDER}/{table_key}"


def _types(snapshot: Snapshot) -> Mapping[str, str]:
    return {column.name: column.type for column in snapshot.columns}


def _sources(columns: Sequence[ColumnSource]) -> list[str]:
    """The names of the existing columns whose values stay as they are, each once."""
    unfilled = [each for each in columns if not each.expression]
    return list(dict.fromkeys(each.source for each in unfilled if each.source is not None))


def _is_changed(name: str, old_type: str, new_type: str) -> str:
    """The SQL condition that a cast and the cast back change the value."""
    value = quote(name)
    cast_back = converted(converted(value, old_type, new_type), new_type, old_type)
    if any(each in old_type for each in _NOT_COMPARABLE):
        value = f"to_json(struct({value} AS v))"
        cast_back = f"to_json(struct({cast_back} AS v))"
    return f"NOT ({value} <=> {cast_back})"


def _sums(frame: "DataFrame", inexact_counts: "Mapping[str, Column]") -> RowSums:
    """The sums of the rows of a frame. The hashes are summed in two halves, without overflow."""
    hashes = content_hash(frame.schema.fields)
    high = F.sum(F.shiftright(hashes, 32)).alias(_HIGH)
    low = F.sum(hashes.bitwiseAND(F.lit(0xFFFFFFFF))).alias(_LOW)
    counts = [count.alias(f"inexact {name}") for name, count in inexact_counts.items()]
    [row] = frame.agg(F.count(F.lit(1)).alias(_COUNT), high, low, *counts).collect()
    checksum = 0 if row[_HIGH] is None else (row[_HIGH] << 32) + row[_LOW]
    return RowSums(
        row_count=row[_COUNT],
        checksum=checksum,
        inexact={name: row[f"inexact {name}"] for name in inexact_counts},
    )
