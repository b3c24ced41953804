"""Selects the files of partitions to archive, decides if they can be copied, and names the copies.

The archive of a table is the folder `archive/<layer>/<table>/` in the lake. Inside it, each
partition column adds a level of folders, named as Spark names them. The archived files are plain
Parquet: without deletion vectors, and with the column names of the table.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import accumulate
from urllib.parse import unquote

from lakehouse.core.declaration.table import TRANSACTION_RETENTION
from lakehouse.core.delta.partition_values import (
    TypedPartition,
    as_spark_spells,
    by_name,
    typed_partition,
)
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import DataFile, FieldPath, PartitionValues, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.text import first_names

ARCHIVE = "archive"
# One run moves at most this many files, or a single partition with more. The record of an operation
# takes about 300 bytes per file, and each reader of the archive reads all records.
MOST_FILES = 50_000
# Tables with column mapping or widened types: their files contain other column names or types than
# the table, and only the log maps them. Other Parquet readers could not use copies of such files.
_MAPPING = "delta.columnMapping.mode"
_UNMAPPED = ("none", "")
_WIDENED = frozenset({"typeWidening", "typeWidening-preview"})
_APPEND_ONLY = "delta.appendOnly"
# S3 copies no larger object in one request. Source: Amazon S3 API reference, CopyObject: "up to 5
# GB in size in a single atomic action". S3 counts in powers of 2.
_MOST_COPIED_BYTES = 5 * 1024**3
# The characters that Spark escapes in the names of partition folders.
# Source: apache/spark v4.2.0, ExternalCatalogUtils.scala, charToEscape
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def typed_in(snapshot: Snapshot, partition: PartitionValues) -> TypedPartition:
    """A partition's values with their types, so that two spellings of one value are equal."""
    return typed_partition(partition, by_name(snapshot.columns))


def files_by_partition(
    snapshot: Snapshot, partitions: Iterable[PartitionValues] | None = None
) -> dict[TypedPartition, tuple[DataFile, ...]]:
    """A table's files by typed partition, sorted by path. `partitions` selects partitions.

    The log may spell the values of a partition in several ways. A DELETE of a partition removes the
    files of all spellings.
    """
    distinct = {file.partition for file in snapshot.files}
    typed = {each: typed_in(snapshot, each) for each in distinct}
    selected = None if partitions is None else {typed_in(snapshot, each) for each in partitions}
    groups = defaultdict[TypedPartition, list[DataFile]](list)
    for file in snapshot.files:
        partition = typed[file.partition]
        if selected is None or partition in selected:
            groups[partition].append(file)
    return {
        each: tuple(sorted(files, key=lambda file: file.path)) for each, files in groups.items()
    }


def count_of_one_run(file_counts: Iterable[int]) -> int:
    """How many partitions, from the first, one run moves: at least one. Takes their file counts."""
    totals = accumulate(file_counts)
    return max(1, sum(1 for total in totals if total <= MOST_FILES))


def refuse_table(snapshot: Snapshot) -> None:
    """Refuses a table that cannot be archived.

    Old rows must leave the table as whole files, Delta must allow deletions, and the log must keep
    the `txn` action that shows which operations on the archive are applied (`records.APP_ID`).
    """
    if snapshot.files and not snapshot.partition_columns:
        raise Refused(
            f"archive of {snapshot.table}: the table has no partitions, so a file may hold rows"
            " from before and after the cutoff, for example"
            f" {first_names([snapshot.files[0].path])}. Either partition the table by a date, or"
            " remove Table(archive=…)"
        )
    if snapshot.properties.get(_APPEND_ONLY, "false").lower() == "true":
        raise Refused(
            f"archive of {snapshot.table}: its property {_APPEND_ONLY} is true, so Delta refuses to"
            " delete rows. Either set the property to false, or remove Table(archive=…)"
        )
    for name in snapshot.properties:
        if name.lower() == TRANSACTION_RETENTION.lower():
            raise Refused(
                f"archive of {snapshot.table}: because of the table's property {name}, its log"
                " forgets which operations on the archive are applied. Either unset the property,"
                " or remove Table(archive=…)"
            )


def why_rewritten(files: Iterable[DataFile], snapshot: Snapshot, *, is_elsewhere: bool) -> str:
    """The reason why Spark must rewrite a partition's rows; empty if its files can be copied.

    `is_elsewhere`: the table lies outside the lake.
    """
    if is_elsewhere:
        return "the table lies outside the lake"
    if snapshot.properties.get(_MAPPING, "").lower() not in _UNMAPPED:
        return "its columns have other names in the files (column mapping)"
    if not _WIDENED.isdisjoint(snapshot.features):
        return "its column types may have been widened"
    for file in files:
        if file.deletion_vector is not None:
            return "some rows in its files are deleted (deletion vectors)"
        if name_in_table(file.path) is None:
            return "some of its files lie outside the table"
        if snapshot.on_s3 and file.size_bytes > _MOST_COPIED_BYTES:
            return "S3 copies no file above 5 GiB"
    return ""


def names_in_files(
    snapshot: Snapshot, recorded: Mapping[str, str], renamed: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The names that each column of the table may have in archived files, most likely name first.

    In copied files, a column has its physical name, which a rename does not change. In rewritten
    files, it has its logical name at the time of archiving; `recorded` maps physical names to
    these logical names. `renamed` maps earlier column names to present names, as declared. If a
    less likely name belongs to another column, it is omitted.
    """
    physical = {
        each.name: snapshot.physical_names.get(each.name, each.name) for each in snapshot.columns
    }
    most_likely = {name: recorded.get(each, each) for name, each in physical.items()}
    column_names = {each.lower() for each in most_likely}
    names_in_use = {each.lower() for each in most_likely.values()}
    names = dict[str, tuple[str, ...]]()
    for name, first in most_likely.items():
        # An earlier name of this column is skipped if a present column has that name.
        others = [name]
        for old, new in renamed.items():
            if new.lower() == name.lower() and old.lower() not in column_names:
                others.append(old)
        names[name] = (first, *[each for each in others if each.lower() not in names_in_use])
    return names


def field_names_in_files(
    snapshot: Snapshot, names: Mapping[str, str], recorded: Mapping[FieldPath, str]
) -> dict[FieldPath, str]:
    """The name of each field inside a struct in archived files, by the field's path in the table.

    `recorded` maps physical paths to the logical names at the time of archiving. `names` are the
    recorded column names. The result is empty without column mapping, and for records of older
    releases, which contain column names only. If it is empty, fields have their present names.
    """
    if names and not recorded:
        return {}
    return {
        path: recorded.get(physical, physical[-1])
        for path, physical in snapshot.physical_fields.items()
    }


def partition_folder(values: Iterable[tuple[str, str | None]]) -> str:
    """The folders of a partition as Spark names them, for example `day=2026-01-31/hour=5`."""
    folders = list[str]()
    for name, value in values:
        # Like Spark, uses the null folder also for an empty string.
        text = _escaped(value) if value else _NULL_FOLDER
        folders.append(f"{_escaped(name)}={text}")
    return "/".join(folders)


def values_in_folders(folders: Iterable[str]) -> PartitionValues:
    """The pairs of column name and value in the names of partition folders; null is `None`."""
    pairs = list[tuple[str, str | None]]()
    for folder in folders:
        name, _, value = folder.partition("=")
        pairs.append((unquote(name), None if value == _NULL_FOLDER else unquote(value)))
    return tuple(pairs)


class ArchivedNames:
    """Chooses unused names in a table's archive for the files of one operation.

    A file keeps its name, unless the name is taken or begins with `_` or `.`, which readers skip.
    """

    def __init__(self, snapshot: Snapshot, number: int, taken: Iterable[str]) -> None:
        self._table_key = snapshot.table
        self._number = number
        self._types = {column.name: column.type for column in snapshot.columns}
        self._taken = {*taken}

    def name_for(self, values: PartitionValues, source: str) -> str:
        """Chooses the name for a file of a partition, and marks the name as taken."""
        spelled = [
            (name, as_spark_spells(value, self._types.get(name, "string")))
            for name, value in values
        ]
        folder = f"{ARCHIVE}/{self._table_key}/{partition_folder(spelled)}"
        last = posixpath.basename(source)
        if last.startswith(("_", ".")):
            last = f"file{last}"
        name = f"{folder}/{last}"
        count = 0
        while name in self._taken:
            count += 1
            name = f"{folder}/{self._number}-{count}-{last}"
        self._taken.add(name)
        return name


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
