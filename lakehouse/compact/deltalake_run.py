"""Compacts a table with deltalake, or undoes such a compaction, without Spark and Java.

deltalake 1.6.6 commits an OPTIMIZE even if another OPTIMIZE has replaced the same files in the
meantime, which doubles their rows. It also ignores its limit of retries. So deltalake only rewrites
the planned files, in a workshop: a folder on this machine with its own Delta log. This module
commits the result to the table.

1. The workshop gets the table's metadata and the planned files, in the plan's order. Files on a
   disk are linked, files on S3 are downloaded. They get plain names in the workshop, because
   deltalake respells the paths in a log: `ä` becomes `%C3%A4`. In the workshop's log, an entry
   above the target size ends each bin (the planned files that become one file).
2. deltalake compacts the workshop. Its commit there names the files that it wrote. If deltalake
   cannot read a planned file, or reads it differently from Spark, the file is named, and Spark has
   to compact the table. Statistics that may be wrong are omitted.
3. The written files are copied into the table's folder. If it is certain that nothing was
   committed, the copies are deleted again. A killed run leaves them, as any killed writer does.
4. The commit, with the plan's figures, creates the table's next version if that does not exist.
   Otherwise the log is read again. If all planned files are still live and the table's metadata is
   the same, the version after the newest one is tried.

**Safety properties** (tests in `test_deltalake_run.py`)
- A commit never overwrites another one, and never removes a file that another writer has removed.
- A commit spells the paths of removed files as the table's log does. With another spelling, the
  files would stay live, and their rows would be doubled.
- If the log names one of the copied files, none of them is deleted, even if the storage reported
  that another writer created the version first.
- If it is unknown whether the commit was created, the copied files stay.
- The table's next compaction by deltalake deletes a workshop that a killed run left. It deletes the
  links, not the files that they point to.
- No value changes for Spark: files that deltalake would misread are left to Spark
  (`test_deltalake_differences.py`).
- No row becomes invisible: bounds that may be wrong are omitted, because readers skip a file or a
  row group by its bounds. (Exception: footers keep the bounds of floats inside structs, because
  deltalake accepts no options for these columns.)
- An undo commits directly after the newest version of the compaction, or not at all.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Transient
from lakehouse.base.processes import hold_lock
from lakehouse.compact.assess import UnreadableFileError
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.lake.commits import (
    VERSIONS_TRIED,
    Location,
    commit_after_newest,
    encoded,
    open_same_table,
    panics_translated,
    table_location,
)
from lakehouse.lake.lake import Lake
from lakehouse.store import DiskStore, S3Store, Store
from lakehouse.store.s3 import download, upload

if TYPE_CHECKING:
    from deltalake import WriterProperties

Actions = list[dict[str, Any]]
Inputs = Mapping[str, DataFile]
# A link in the workshop to the table's folder. Files at paths that deltalake does not respell are
# read through this one link, because a link per file takes longer than the rest of a compaction.
_LINK = "table"
_PLAIN_PATH = re.compile(r"([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_.=-]*")


class CommitFailedError(Exception):
    """Other writers changed planned files or the table itself, or always committed first.

    deltalake's own error has the same name.
    """


def compact_by_deltalake(
    lake: Lake, snapshot: Snapshot, planned: CompactionPlan, user_metadata: str
) -> None:
    """Rewrites the planned files, and commits the result with `user_metadata`.

    Raises:
        CommitFailedError: another writer changed planned files or the table itself, or other
            writers always committed first.
        UnreadableFileError: deltalake cannot read a planned file, or would misread it.
        Transient: the next version exists, but the log does not show it.
    """
    key = snapshot.table
    with table_location(lake, key) as location, _workshop(lake, key) as folder:
        inputs = _inputs(planned, location[0])
        _fetch_inputs(inputs, folder, location, Path(lake.table_uri(snapshot.table)).absolute())
        with panics_translated(f"compaction of {snapshot.table}"):
            schema: Actions = [{kind: action} for kind, action in snapshot.definition.items()]
            _write_log(inputs, folder, planned, [*schema])
            try:
                actions = _rewrite(inputs, folder, planned, user_metadata)
            except Exception as error:
                _name_unreadable(snapshot.table, inputs, folder, schema, error)
                raise
        written = [Path(unquote(action["add"]["path"])) for action in actions if "add" in action]
        paths_in_log = {folder / inside: file.path for inside, file in inputs.items()}
        misread = find_misread(paths_in_log, [folder / file for file in written])
        if misread is not None:
            raise UnreadableFileError(snapshot.table, *misread)
        with _delivered(folder, written, location):
            _commit(lake, snapshot, planned, actions, location)


def restore_after(lake: Lake, before: Snapshot, newest: int, user_metadata: str) -> None:
    """Restores the version of `before` in a commit after version `newest`, or raises."""
    from deltalake import CommitProperties

    properties = CommitProperties(custom_metadata={"userMetadata": user_metadata})
    with panics_translated(f"RESTORE of {before.table}"):
        table = open_same_table(lake, before, version=newest)
        table.restore(before.version, commit_properties=properties)


@contextmanager
def _workshop(lake: Lake, key: str) -> Iterator[Path]:
    """An empty folder, removed after the block, of one process of this home at a time.

    The lease of a process that was suspended may have expired. Two processes that share a folder
    write files of the same names, and the process whose commit fails deletes them.

    Raises:
        Transient: another process of this home has the folder.
    """
    folder = lake.settings.home / "workshops" / key.replace("/", ".")
    refusal = Transient(
        f"compaction of {key}: another process of this home rewrites its files. Try again later"
    )
    with hold_lock(folder.parent / f"{folder.name}.lock", seconds=0, refusal=refusal):
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "_delta_log").mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _inputs(planned: CompactionPlan, store: Store) -> Inputs:
    """The planned files in the plan's order, by their paths in the workshop."""
    files = [file for bin_ in planned.bins for file in bin_.files]
    on_disk = not isinstance(store, S3Store)
    inputs = dict[str, DataFile]()
    for number, file in enumerate(files):
        is_plain = _PLAIN_PATH.fullmatch(file.path) is not None
        inside = f"{_LINK}/{file.path}" if on_disk and is_plain else f"input-{number}.parquet"
        inputs[inside] = file
    return inputs


def _fetch_inputs(inputs: Inputs, folder: Path, location: Location, root: Path) -> None:
    """Links or downloads the planned files (step 1). `root`: the table's folder on a disk."""
    store, prefix = location
    if isinstance(store, S3Store):
        names = [f"{prefix}{unquote(file.path)}" for file in inputs.values()]
        download(store, names, [folder / inside for inside in inputs])
        return
    (folder / _LINK).symlink_to(root)
    for inside, file in inputs.items():
        if not inside.startswith(f"{_LINK}/"):
            (folder / inside).symlink_to(root / unquote(file.path))


def _write_log(inputs: Inputs, folder: Path, planned: CompactionPlan, actions: Actions) -> None:
    """Writes the log of the workshop (step 1): `actions`, then the planned files by bin."""
    remaining = iter(inputs.items())
    for number, bin_ in enumerate(planned.bins):
        for inside, file in islice(remaining, len(bin_.files)):
            actions.append(_add_action(inside, file, file.size_bytes))
        # deltalake closes the bin here. It skips this entry as too large, and never opens it.
        too_large = planned.statement.up_to_bytes + 1
        actions.append(_add_action(f"end-of-bin-{number}", bin_.files[0], too_large))
    (folder / "_delta_log" / f"{0:020}.json").write_bytes(encoded(actions))


def _add_action(path: str, file: DataFile, size_bytes: int) -> dict[str, Any]:
    add = {
        "path": path,
        "partitionValues": dict(file.partition),
        "size": size_bytes,
        "modificationTime": file.modified_ms,
        "dataChange": True,
    }
    if file.row_count is not None:
        add["stats"] = json.dumps({"numRecords": file.row_count})
    return {"add": add}


def _rewrite(inputs: Inputs, folder: Path, planned: CompactionPlan, user_metadata: str) -> Actions:
    """Rewrites the files (step 2), and returns the actions of a commit to the table."""
    from deltalake import DeltaTable

    table = DeltaTable(folder.absolute().as_uri())
    fields = json.loads(table.schema().to_json())["fields"]
    table.optimize.compact(
        target_size=planned.statement.up_to_bytes, writer_properties=writer_properties(fields)
    )
    lines = (folder / "_delta_log" / f"{1:020}.json").read_text().splitlines()
    actions: Actions = []
    for action in map(json.loads, lines):
        kind, values = next(iter(action.items()))
        content = {name: value for name, value in values.items() if value is not None}
        if kind == "commitInfo":
            content["readVersion"] = planned.version
            content["userMetadata"] = user_metadata
            content["timestamp"] = now_ms()
        elif kind == "remove":
            content["path"] = inputs[content["path"]].path
        elif kind == "add" and "stats" in content:
            content["stats"] = json.dumps(sound_statistics(json.loads(content["stats"]), fields))
        actions.append({kind: content})
    return actions


@contextmanager
def _delivered(folder: Path, files: Sequence[Path], location: Location) -> Iterator[None]:
    """Copies files from the workshop `folder` into the table (step 3). The block commits them."""
    store, prefix = location
    is_delivered = False
    try:
        for file in files:
            _copy_file(folder, file.as_posix(), location)
        is_delivered = True
        yield
    except BaseException as error:
        if not is_delivered or isinstance(error, CommitFailedError):
            with suppress(LakehouseError, OSError):
                store.delete([f"{prefix}{file.as_posix()}" for file in files])
        raise


def _copy_file(folder: Path, name: str, location: Location) -> None:
    store, prefix = location
    if isinstance(store, S3Store):
        upload(folder / name, store, f"{prefix}{name}")
        return
    workshop = DiskStore(folder)
    written = workshop.stat(name)
    assert written is not None
    store.copy(written, f"{prefix}{name}", of=workshop)


def _name_unreadable(
    table: str, inputs: Inputs, folder: Path, schema: Actions, error: Exception
) -> None:
    """Raises `UnreadableFileError` if deltalake cannot read one of the inputs by itself."""
    for inside, file in inputs.items():
        column = _unreadable_column([*schema, _add_action(inside, file, file.size_bytes)], folder)
        if column is not None:
            why = f"deltalake cannot read column {column!r} of {file.path}"
            raise UnreadableFileError(table, file.path, why) from error


def _unreadable_column(actions: Actions, folder: Path) -> str | None:
    """The first column that deltalake cannot read from the files of a log; `None` if it reads all.

    `actions` become the only commit of the table in `folder`, a workshop.
    """
    from deltalake import DeltaTable, QueryBuilder

    log = folder / "_delta_log"
    for commit in log.iterdir():
        commit.unlink()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    table = DeltaTable(folder.absolute().as_uri())
    query = QueryBuilder().register("files", table)
    for column in [field.name for field in table.schema().fields]:
        quoted = column.replace('"', '""')
        try:
            for _ in query.execute(f'SELECT "{quoted}" FROM files'):  # noqa: S608
                pass
        except Exception:
            return column
    return None


def _commit(
    lake: Lake,
    snapshot: Snapshot,
    planned: CompactionPlan,
    actions: Actions,
    location: Location,
) -> None:
    """Commits the actions to the table (step 4)."""
    planned_paths = {file.path for bin_ in planned.bins for file in bin_.files}

    def check(newest: Snapshot) -> None:
        if _unchangeable(newest) != _unchangeable(snapshot):
            raise CommitFailedError("another writer changed the table's metadata or protocol")
        removed_paths = planned_paths - _live_paths(newest.files)
        if removed_paths:
            raise CommitFailedError(
                f"another writer removed {len(removed_paths)} of the planned files"
            )

    if commit_after_newest(lake, snapshot, location, actions, check) is None:
        raise CommitFailedError(f"other writers committed first {VERSIONS_TRIED} times in a row")


def _live_paths(files: Sequence[DataFile]) -> set[str]:
    """The paths of the live files, except those that got a deletion vector after the plan."""
    return {file.path for file in files if file.deletion_vector is None}


def _unchangeable(snapshot: Snapshot) -> tuple[object, ...]:
    """The facts about the table that must not change between the plan and the commit."""
    return (
        snapshot.table_id,
        snapshot.columns,
        snapshot.partition_columns,
        snapshot.features,
        snapshot.properties,
    )


_SPARK_VERSION = b"org.apache.spark.version"
# Spark versions before 3.1.0 write Julian dates or INT96 times. Later versions do so only in files
# with one of these keys.
# Source: apache/spark v4.2.0, DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec
_FIRST_GREGORIAN_VERSION = b"3.1.0"
_JULIAN_KEYS = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
# The types whose bounds may be wrong. A double represents decimals exactly up to 15 digits.
_INEXACT_TYPES = re.compile(r"float|double|decimal\((1[6-9]|[23]\d),\d+\)")


def find_misread(inputs: Mapping[Path, str], written: Sequence[Path]) -> tuple[str, str] | None:
    """The path in the log of an input that deltalake read differently from Spark, and the reason.

    Spark ignores the case of column names, and converts dates of the Julian calendar. deltalake
    reads a column as null if the case of its name differs, and does not convert dates. The
    comparison of rows detects neither, because it reads files as deltalake does.

    `inputs` maps the files that deltalake has read to their paths in the table's log. `written`
    are the files that it wrote, with the table's column names. `None` if there is no such file.
    """
    columns = {name for path in written for name in _columns_of(pq.read_metadata(path))}
    in_lower_case = {name.lower() for name in columns}
    for path, path_in_log in inputs.items():
        footer = pq.read_metadata(path)
        other_columns = {*_columns_of(footer)} - columns
        misread = sorted(name for name in other_columns if name.lower() in in_lower_case)
        reason = ""
        if misread:
            reason = f"the column name {misread[0]} in another case than the table"
        elif _may_have_julian_dates(footer.metadata or {}):
            reason = "dates of an old calendar"
        if reason:
            return path_in_log, f"deltalake would misread {path_in_log}, which has {reason}"
    return None


def _may_have_julian_dates(metadata: Mapping[bytes, bytes]) -> bool:
    """Whether a footer's metadata shows that Spark may have written dates of the old calendar."""
    if not _JULIAN_KEYS.isdisjoint(metadata):
        return True
    version = metadata.get(_SPARK_VERSION)
    return version is not None and version < _FIRST_GREGORIAN_VERSION


def writer_properties(fields: Sequence[Any]) -> "WriterProperties | None":
    """deltalake's defaults, without bounds of floats in footers, because such bounds ignore NaN.

    `None` stands for the defaults. `fields` are the fields of the table's schema, as JSON.
    """
    from deltalake import ColumnProperties, WriterProperties

    floats = [field["name"] for field in fields if field["type"] in ("float", "double")]
    if not floats:
        return None
    return WriterProperties(
        compression="ZSTD",
        compression_level=4,
        column_properties=dict.fromkeys(floats, ColumnProperties(statistics_enabled="NONE")),
    )


def sound_statistics(statistics: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    """The statistics of a file that deltalake wrote, without bounds that may be wrong.

    deltalake 1.6.6 rounds the bounds of decimals to a double or to 64 bits, and ignores NaN.
    """
    bounds = {
        kind: _sound_bounds(statistics[kind], fields)
        for kind in ("minValues", "maxValues")
        if kind in statistics
    }
    return {**statistics, **bounds}


def _sound_bounds(bounds: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    sound = dict[str, Any]()
    for field in fields:
        name = field["name"]
        type_ = field["type"]
        if isinstance(type_, dict):
            # Among the nested types, only structs have fields and bounds.
            inner: Any = type_
            inner_bounds = _sound_bounds(bounds.get(name, {}), inner.get("fields", ()))
            if inner_bounds:
                sound[name] = inner_bounds
        elif name in bounds and not _INEXACT_TYPES.fullmatch(type_):
            sound[name] = bounds[name]
    return sound


def _columns_of(footer: Any) -> list[str]:
    """The paths of all columns of a Parquet file, with the names of enclosing columns."""
    return [footer.schema.column(index).path for index in range(len(footer.schema))]
