"""Compacts a table with deltalake, without Spark and Java.

deltalake 1.6.6 commits an OPTIMIZE even if another OPTIMIZE has replaced the same files in the
meantime, which doubles their rows. It also ignores its limit of retries. So deltalake only rewrites
the planned files, in a workshop: a folder on this machine with its own Delta log. This module
commits the result to the table.

1. The workshop gets the table's metadata and the planned files, in the plan's order. Files on a
   disk are linked, files on S3 are downloaded. They get plain names in the workshop, because
   deltalake respells the paths in a log: `ä` becomes `%C3%A4`. In the workshop's log, an entry
   above the target size ends each bin (the planned files that become one file).
2. deltalake compacts the workshop. Its commit there names the files that it wrote. If deltalake
   cannot rewrite the planned files, or reads one differently from Spark, Spark has to compact the
   table. Statistics that may be wrong are omitted.
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
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import LakehouseError, Refused, Transient
from lakehouse.base.processes import hold_lock
from lakehouse.compact.plan.compaction import CompactionPlan
from lakehouse.delta.snapshot import DataFile, Snapshot
from lakehouse.lake.commits import (
    Actions,
    commit_after_newest,
    encoded,
    file_action,
    storage_errors,
)
from lakehouse.lake.lake import Lake
from lakehouse.spark.errors import first_line
from lakehouse.store import DiskStore, S3Store, Store
from lakehouse.store.s3 import download, upload

if TYPE_CHECKING:
    from deltalake import WriterProperties

Inputs = Mapping[str, DataFile]
# A table's store, also of a table of other programs, and the prefix of its files there.
Location = tuple[Store, str]
# A link in the workshop to the table's folder. Files at paths that deltalake does not respell are
# read through this one link, because a link per file takes longer than the rest of a compaction.
_LINK = "table"
_PLAIN_PATH = re.compile(r"([A-Za-z0-9_=-][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_=-][A-Za-z0-9_.=-]*")


class CommitFailedError(Exception):
    """Other writers changed planned files or the table itself.

    deltalake's own error has the same name.
    """


class UnreadableFileError(Refused):
    """deltalake cannot rewrite the planned files, or would misread one."""


def compact_by_deltalake(
    lake: Lake, snapshot: Snapshot, planned: CompactionPlan, user_metadata: str
) -> None:
    """Rewrites the planned files, and commits the result with `user_metadata`.

    Raises:
        CommitFailedError: another writer changed planned files or the table itself.
        UnreadableFileError: deltalake cannot rewrite the planned files, or would misread one.
        Transient: other writers always committed first, or the next version exists, but the log
            does not show it.
    """
    key = snapshot.table
    store, name = lake.store.place_of(key)
    location = (store, f"{name}/" if name else "")
    with _workshop(lake, key) as folder:
        inputs = _fetch(planned, folder, location, Path(lake.table_uri(key)).absolute())
        with storage_errors(f"compaction of {key}"):
            _write_log(inputs, folder, planned, snapshot)
            try:
                actions = _rewrite(inputs, folder, planned, user_metadata)
            except Exception as error:
                raise UnreadableFileError(
                    f"compaction of {key}: deltalake cannot rewrite the planned files "
                    f'({first_line(error)}). Use engine="spark"'
                ) from error
        written = [unquote(action["add"]["path"]) for action in actions if "add" in action]
        paths_in_log = {folder / inside: file.path for inside, file in inputs.items()}
        misread = find_misread(paths_in_log, [folder / name for name in written])
        if misread is not None:
            raise UnreadableFileError(f'compaction of {key}: {misread}. Use engine="spark"')
        with _delivered(folder, written, location):
            _commit(lake, snapshot, planned, actions)


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


def _fetch(planned: CompactionPlan, folder: Path, location: Location, root: Path) -> Inputs:
    """Links or downloads the planned files (step 1). Returns them by their paths in the workshop.

    They are in the plan's order. `root`: the table's folder on a disk.
    """
    store, prefix = location
    files = [file for bin_ in planned.bins for file in bin_.files]
    if isinstance(store, S3Store):
        downloads = {f"input-{number}.parquet": file for number, file in enumerate(files)}
        names = [f"{prefix}{unquote(file.path)}" for file in files]
        download(store, names, [folder / inside for inside in downloads])
        return downloads
    (folder / _LINK).symlink_to(root)
    links = dict[str, DataFile]()
    for number, file in enumerate(files):
        inside = f"{_LINK}/{file.path}"
        if not _PLAIN_PATH.fullmatch(file.path):
            inside = f"input-{number}.parquet"
            (folder / inside).symlink_to(root / unquote(file.path))
        links[inside] = file
    return links


def _write_log(inputs: Inputs, folder: Path, planned: CompactionPlan, snapshot: Snapshot) -> None:
    """Writes the log of the workshop (step 1): the table's metadata, and its files by bin."""
    actions: Actions = [{kind: action} for kind, action in snapshot.definition.items()]
    remaining = iter(inputs.items())
    for number, bin_ in enumerate(planned.bins):
        for inside, file in islice(remaining, len(bin_.files)):
            actions.append(file_action("add", replace(file, path=inside)))
        # deltalake closes the bin here. It skips this entry as too large, and never opens it.
        too_large = planned.statement.up_to_bytes + 1
        end = replace(bin_.files[0], path=f"end-of-bin-{number}", size_bytes=too_large)
        actions.append(file_action("add", end))
    (folder / "_delta_log" / f"{0:020}.json").write_bytes(encoded(actions))


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
            statistics = json.loads(content["stats"])
            for bounds in statistics.keys() & {"minValues", "maxValues"}:
                statistics[bounds] = _sound_bounds(statistics[bounds], fields)
            content["stats"] = json.dumps(statistics)
        actions.append({kind: content})
    return actions


@contextmanager
def _delivered(folder: Path, names: Sequence[str], location: Location) -> Iterator[None]:
    """Copies files from the workshop `folder` into the table (step 3). The block commits them."""
    store, prefix = location
    is_delivered = False
    try:
        for name in names:
            _copy_file(folder, name, location)
        is_delivered = True
        yield
    except BaseException as error:
        if not is_delivered or isinstance(error, CommitFailedError):
            with suppress(LakehouseError, OSError):
                store.delete([f"{prefix}{name}" for name in names])
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


def _commit(lake: Lake, snapshot: Snapshot, planned: CompactionPlan, actions: Actions) -> None:
    """Commits the actions to the table (step 4)."""
    planned_paths = {file.path for bin_ in planned.bins for file in bin_.files}

    def check(newest: Snapshot) -> None:
        if newest.definition != snapshot.definition:
            raise CommitFailedError("another writer changed the table's metadata or protocol")
        # A file that got a deletion vector after the plan counts as removed.
        live_paths = {file.path for file in newest.files if file.deletion_vector is None}
        removed_paths = planned_paths - live_paths
        if removed_paths:
            raise CommitFailedError(
                f"another writer removed {len(removed_paths)} of the planned files"
            )

    commit_after_newest(lake, snapshot, actions, check)


_SPARK_VERSION = b"org.apache.spark.version"
# Spark versions before 3.1.0 write Julian dates or INT96 times. Later versions do so only in files
# with one of these keys.
# Source: apache/spark v4.2.0, DataSourceUtils.scala, datetimeRebaseSpec and int96RebaseSpec
_FIRST_GREGORIAN_VERSION = b"3.1.0"
_JULIAN_KEYS = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
# The types whose bounds may be wrong. A double represents decimals exactly up to 15 digits.
_INEXACT_TYPES = re.compile(r"float|double|decimal\((1[6-9]|[23]\d),\d+\)")


def find_misread(inputs: Mapping[Path, str], written: Sequence[Path]) -> str | None:
    """Why deltalake read an input differently from Spark, as a clause.

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
        metadata = footer.metadata or {}
        spark_version = metadata.get(_SPARK_VERSION, _FIRST_GREGORIAN_VERSION)
        reason = ""
        if misread:
            reason = f"the column name {misread[0]} in another case than the table"
        elif spark_version < _FIRST_GREGORIAN_VERSION or not _JULIAN_KEYS.isdisjoint(metadata):
            reason = "dates of an old calendar"
        if reason:
            return f"deltalake would misread {path_in_log}, which has {reason}"
    return None


def writer_properties(fields: Sequence[Any]) -> "WriterProperties":
    """deltalake's defaults, without bounds of floats in footers, because such bounds ignore NaN.

    `fields` are the fields of the table's schema, as JSON.
    """
    from deltalake import ColumnProperties, WriterProperties

    floats = [field["name"] for field in fields if field["type"] in ("float", "double")]
    return WriterProperties(
        compression="ZSTD",
        compression_level=4,
        column_properties=dict.fromkeys(floats, ColumnProperties(statistics_enabled="NONE")),
    )


def _sound_bounds(bounds: Mapping[str, Any], fields: Sequence[Any]) -> dict[str, Any]:
    """The bounds in the statistics of a file that deltalake wrote, without those that may be wrong.

    deltalake 1.6.6 rounds the bounds of decimals to a double or to 64 bits, and ignores NaN.
    """
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
