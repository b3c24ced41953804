"""The files of an archived partition, whether they can be copied, and their names in the archive.

The archive is the folder `archive/<layer>/<table>/`. Inside it, each partition column adds a level
of folders, named as Spark names them. The files are plain Parquet, without deletion vectors and
with the table's column names.
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
# The limit of one run. A record takes about 300 bytes per file, and each reader reads all records.
MOST_FILES = 50_000
# With column mapping or widened types, the log has the names or types of columns. Other Parquet
# readers would not find them in copied files.
_MAPPING = "delta.columnMapping.mode"
_UNMAPPED = ("none", "")
_WIDENED = frozenset({"typeWidening", "typeWidening-preview"})
_APPEND_ONLY = "delta.appendOnly"
# Source: AWS, CopyObject: "up to 5 GB in size in a single atomic action"; S3 counts in powers of 2.
_MOST_COPIED_BYTES = 5 * 1024**3
# The characters that Spark escapes in the names of partition folders.
# Source: apache/spark v4.2.0, ExternalCatalogUtils.scala, charToEscape
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def typed_in(snapshot: Snapshot, partition: PartitionValues) -> TypedPartition:
    """The values of one of the table's partitions, typed as a WHERE clause compares them."""
    return typed_partition(partition, by_name(snapshot.columns))


def files_by_partition(
    snapshot: Snapshot, partitions: Iterable[PartitionValues] | None = None
) -> dict[TypedPartition, tuple[DataFile, ...]]:
    """A table's files by typed partition, or only those that a DELETE of `partitions` removes."""
    present = {file.partition for file in snapshot.files}
    typed = {each: typed_in(snapshot, each) for each in present}
    wanted = None if partitions is None else {typed_in(snapshot, each) for each in partitions}
    groups = defaultdict[TypedPartition, list[DataFile]](list)
    for file in snapshot.files:
        if wanted is None or typed[file.partition] in wanted:
            groups[typed[file.partition]].append(file)
    return {
        each: tuple(sorted(files, key=lambda file: file.path)) for each, files in groups.items()
    }


def count_of_one_run(file_counts: Iterable[int]) -> int:
    """The number of partitions that one run moves, at least one, given their file counts."""
    counts = accumulate(file_counts)
    return max(1, sum(1 for count in counts if count <= MOST_FILES))


def refuse_rewrites(snapshot: Snapshot) -> None:
    """Refuses a table from which old rows cannot be removed as whole files.

    Also refuses a table whose log forgets transaction ids.
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
            f"archive of {snapshot.table}: its property {_APPEND_ONLY} is true, so Delta deletes no"
            " row. Either set the property to false, or remove Table(archive=…)"
        )
    if names := [
        name for name in snapshot.properties if name.lower() == TRANSACTION_RETENTION.lower()
    ]:
        raise Refused(
            f"archive of {snapshot.table}: because of the table's property {names[0]}, its log"
            " forgets which operations on the archive are applied. Either unset the property, or"
            " remove Table(archive=…)"
        )


def why_rewritten(files: Iterable[DataFile], snapshot: Snapshot, *, is_elsewhere: bool) -> str:
    """The reason why a partition's files cannot be copied as they are; empty if they can.

    `is_elsewhere`: the table lies outside the lake.
    """
    if is_elsewhere:
        return "the table lies outside the lake"
    if snapshot.properties.get(_MAPPING, "").lower() not in _UNMAPPED:
        return "its columns have other names in the files (column mapping)"
    if not _WIDENED.isdisjoint(snapshot.features):
        return "its column types were widened"
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
    files, it has its logical name from the time of archiving: `recorded` maps physical names to
    these. `renamed` maps earlier names to present ones, by declaration. A name that belongs to
    another column is omitted.
    """
    physical = {
        each.name: snapshot.physical_names.get(each.name, each.name) for each in snapshot.columns
    }
    stored = {name: recorded.get(each, each) for name, each in physical.items()}
    present = {each.lower() for each in stored}
    in_files = {each.lower() for each in stored.values()}
    names = dict[str, tuple[str, ...]]()
    for name, most_likely in stored.items():
        earlier = [
            old
            for old, new in renamed.items()
            if new.lower() == name.lower() and old.lower() not in present
        ]
        others = [each for each in (name, *earlier) if each.lower() not in in_files]
        names[name] = (most_likely, *others)
    return names


def field_names_in_files(
    snapshot: Snapshot, names: Mapping[str, str], recorded: Mapping[FieldPath, str]
) -> dict[FieldPath, str]:
    """The name of each field inside a struct in archived files, by the field's path in the table.

    `recorded` maps physical paths to the logical names from the time of archiving. `names` are the
    recorded column names. The result is empty without column mapping, and for records of older
    releases, which have column names only: such fields are expected under their present names.
    """
    if names and not recorded:
        return {}
    return {
        path: recorded.get(physical, physical[-1])
        for path, physical in snapshot.physical_fields.items()
    }


def partition_folder(values: Iterable[tuple[str, str | None]]) -> str:
    """The folders of a partition as Spark names them, for example `day=2026-01-31/hour=5`."""
    return "/".join(
        f"{_escaped(name)}={_NULL_FOLDER if value in (None, '') else _escaped(value or '')}"
        for name, value in values
    )


def values_in_folders(folders: Iterable[str]) -> PartitionValues:
    """The pairs of column name and value in the names of partition folders."""
    pairs = (folder.partition("=") for folder in folders)
    return tuple(
        (unquote(name), None if value == _NULL_FOLDER else unquote(value))
        for name, _, value in pairs
    )


class ArchivedNames:
    """Chooses unused names in a table's archive for the files of one operation.

    A file keeps its name, unless the name is taken or has a prefix that readers skip (`_`, `.`).
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
