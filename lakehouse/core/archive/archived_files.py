"""The files of an archived partition, whether they can be copied, and their names in the archive.

The archive lies at `archive/<layer>/<table>/`, with a folder for each partition column, as Spark
names them. Its files are plain Parquet, without deletion vectors and with the table's column names.
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
# A record names each file, in about 300 bytes, and is read with all others by each reader.
MOST_FILES = 50_000
# With these, the names or types of columns come from the log, so that other readers of Parquet
# would not find them in the files.
_MAPPING = "delta.columnMapping.mode"
_UNMAPPED = ("none", "")
_APPEND_ONLY = "delta.appendOnly"
_WIDENED = frozenset({"typeWidening", "typeWidening-preview"})
# Source: AWS, CopyObject: "up to 5 GB in size in a single atomic action"; S3 counts in powers of 2.
_MOST_COPIED_BYTES = 5 * 1024**3
# The characters that Spark escapes in the names of partition folders.
# Source: apache/spark v4.2.0, ExternalCatalogUtils.scala, charToEscape
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def typed_in(snapshot: Snapshot, partition: PartitionValues) -> TypedPartition:
    """The values of a partition of this table, as a WHERE clause compares them."""
    return typed_partition(partition, by_name(snapshot.columns))


def files_by_partition(
    snapshot: Snapshot, partitions: Iterable[PartitionValues] | None = None
) -> dict[TypedPartition, tuple[DataFile, ...]]:
    """A table's files by typed partition: all, or those that a DELETE of `partitions` removes."""
    found = {file.partition for file in snapshot.files}
    typed = {each: typed_in(snapshot, each) for each in found}
    wanted = None if partitions is None else {typed_in(snapshot, each) for each in partitions}
    groups = defaultdict[TypedPartition, list[DataFile]](list)
    for file in snapshot.files:
        if wanted is None or typed[file.partition] in wanted:
            groups[typed[file.partition]].append(file)
    return {
        each: tuple(sorted(files, key=lambda file: file.path)) for each, files in groups.items()
    }


def count_of_one_run(file_counts: Iterable[int]) -> int:
    """How many of these partitions, by their numbers of files, one run moves: at least one."""
    counts = accumulate(file_counts)
    return max(1, sum(1 for count in counts if count <= MOST_FILES))


def refuse_rewrites(snapshot: Snapshot) -> None:
    """Refuses a table from which rows cannot be deleted, or not as whole files."""
    if snapshot.files and not snapshot.partition_columns:
        raise Refused(
            f"archive of {snapshot.table}: it has no partitions, so its files may hold rows from"
            f" before and after the cutoff, like {first_names([snapshot.files[0].path])}. Either"
            " partition the table by a date, or remove Table(archive=…)"
        )
    if snapshot.properties.get(_APPEND_ONLY, "false").lower() == "true":
        raise Refused(
            f"archive of {snapshot.table}: its property {_APPEND_ONLY} is true, so Delta deletes no"
            " row. Either set it to false, or remove Table(archive=…)"
        )
    if forgets := [
        name for name in snapshot.properties if name.lower() == TRANSACTION_RETENTION.lower()
    ]:
        raise Refused(
            f"archive of {snapshot.table}: with its property {forgets[0]}, its log forgets which"
            " operations on the archive are applied. Either unset it, or remove Table(archive=…)"
        )


def why_rewritten(files: Iterable[DataFile], snapshot: Snapshot, *, is_elsewhere: bool) -> str:
    """Why a partition's files cannot be copied as they are; empty if they can.

    `is_elsewhere`: the table lies outside the lake.
    """
    if is_elsewhere:
        return "the table lies outside the lake"
    if snapshot.properties.get(_MAPPING, "").lower() not in _UNMAPPED:
        return "its columns have other names in the files (column mapping)"
    if not _WIDENED.isdisjoint(snapshot.features):
        return "types of its columns were widened"
    for file in files:
        if file.deletion_vector is not None:
            return "rows of its files are deleted (deletion vectors)"
        if name_in_table(file.path) is None:
            return "files of it lie outside the table"
        if snapshot.on_s3 and file.size_bytes > _MOST_COPIED_BYTES:
            return "S3 copies no file above 5 GiB"
    return ""


def names_in_files(
    snapshot: Snapshot, recorded: Mapping[str, str], renamed: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The names that each column of the table may have in archived files, the likeliest first.

    A renamed column keeps its physical name, which is its name in copied files. Files that Spark
    wrote again have the names of that time, which `recorded` has by physical name. `renamed` has
    earlier names by declaration. Names of other columns do not count.
    """
    physical = {
        each.name: snapshot.physical_names.get(each.name, each.name) for each in snapshot.columns
    }
    stored = {name: recorded.get(each, each) for name, each in physical.items()}
    present = {each.lower() for each in stored}
    in_files = {each.lower() for each in stored.values()}
    names = dict[str, tuple[str, ...]]()
    for name, surest in stored.items():
        earlier = [
            old
            for old, new in renamed.items()
            if new.lower() == name.lower() and old.lower() not in present
        ]
        others = [each for each in (name, *earlier) if each.lower() not in in_files]
        names[name] = (surest, *others)
    return names


def field_names_in_files(
    snapshot: Snapshot, names: Mapping[str, str], recorded: Mapping[FieldPath, str]
) -> dict[FieldPath, str]:
    """The names that fields inside structs have in archived files, by their paths in the table.

    Names are found by physical path, as in `names_in_files`, whose records are `names`. Without
    column mapping, all fields have their own names, and none is listed. The same applies to older
    records under column mapping, which have names of columns only.
    """
    if names and not recorded:
        return {}
    return {
        path: recorded.get(physical, physical[-1])
        for path, physical in snapshot.physical_fields.items()
    }


def partition_folder(values: Iterable[tuple[str, str | None]]) -> str:
    """The folders of a partition as Spark names them, like `day=2026-01-31/hour=5`."""
    return "/".join(
        f"{_escaped(name)}={_NULL_FOLDER if value in (None, '') else _escaped(value or '')}"
        for name, value in values
    )


def values_in_folders(folders: Iterable[str]) -> PartitionValues:
    """The pairs of column and value in the names of partition folders."""
    pairs = (folder.partition("=") for folder in folders)
    return tuple(
        (unquote(name), None if value == _NULL_FOLDER else unquote(value))
        for name, _, value in pairs
    )


class ArchivedNames:
    """Free names in the archive of a table, for the files of one operation.

    A file keeps its own name, unless that name is taken or begins in a way that readers skip.
    """

    def __init__(self, snapshot: Snapshot, number: int, taken: Iterable[str]) -> None:
        self._table_key = snapshot.table
        self._number = number
        self._types = {column.name: column.type for column in snapshot.columns}
        self._taken = {*taken}

    def name_for(self, values: PartitionValues, source: str) -> str:
        """The name for a file of a partition, which is now taken."""
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
