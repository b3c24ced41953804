"""How the columns of a table, and the fields inside them, are named and typed in archived files.

An archived file keeps the column names from the time of its archiving. Column mapping or the
declaration shows how a column was renamed later. If a file has a column that neither of them
explains, and also lacks a column of the table, it is refused: if the first was renamed to the
second, the values would be read as null.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lakehouse.core.archive.archived_files import field_names_in_files, names_in_files
from lakehouse.core.archive.contents import ArchivedPartition
from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.delta.snapshot import FieldPath, Snapshot
from lakehouse.core.errors import Refused
from lakehouse.engine.archive.copies import schemas_in_footers
from lakehouse.engine.lake import TableSession

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

T = TypeVar("T")
# Prefixes of columns that Delta adds to data files for row tracking and for the change data feed.
# They are not columns of the table.
# Source: delta-io/delta v4.4.0, CDCReader.scala, CDC_COLUMNS_IN_DATA
_DELTA_PREFIXES = ("_row-id-col-", "_row-commit-version-col-", "__is_cdc", "_change_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGroup:
    """Archived files that Spark reads together, because their columns have the same names.

    `names` maps each column of the table to its possible names in these files, most likely first.
    `field_names` maps the path of each field inside its structs to the field's name in the files.
    """

    partition_columns: tuple[str, ...]
    names: Mapping[str, tuple[str, ...]]
    field_names: Mapping[FieldPath, str]
    files: list[str]


def groups_of(
    session: TableSession, snapshot: Snapshot, partitions: Iterable[ArchivedPartition]
) -> Iterable[StoredGroup]:
    """The archived files, grouped by the names of their columns, also of partition columns."""
    groups = dict[object, StoredGroup]()
    for each in partitions:
        columns = tuple(name for name, _ in each.partition)
        names = names_in_files(snapshot, each.names, session.table.renamed)
        fields = field_names_in_files(snapshot, each.names, each.field_names)
        group = groups.setdefault(
            (columns, *names.values(), *fields.values()),
            StoredGroup(partition_columns=columns, names=names, field_names=fields, files=[]),
        )
        group.files.extend(file.archived for file in each.files)
    return groups.values()


def refuse_unmapped(session: TableSession, schema: "StructType", group: StoredGroup) -> None:
    """Refuses a file that both has a column that the table lacks, and lacks a column of the table.

    The first may have been renamed to the second. The same applies to fields inside a column.
    """
    schemas = schemas_in_footers(session.lake.store, group.files)
    for file, stored in zip(group.files, schemas, strict=True):
        unknown, missing = _unmapped_columns(session, group, stored)
        if unknown and missing:
            column = repr(unknown[0])
            use = f"Use renamed={{{column}: …}} in the declaration; if it was dropped, add it"
            if isinstance(session.table.write, Adopted):
                use = f"Add {column}"
            _refuse(session, file, ("column", unknown[0], missing[0]), use)
        for unknown_field, missing_field in _unmapped_fields(schema, group, stored):
            names = ("field", unknown_field, missing_field)
            _refuse(session, file, names, f"Add {unknown_field!r}")


def _refuse(session: TableSession, file: str, names: tuple[str, str, str], use: str) -> None:
    kind, unknown, missing = names
    raise Refused(
        f"archive of {session.key}: {file} has a {kind} {unknown!r}, which the table lacks, and"
        f" lacks {missing!r}, so values would be lost if {unknown!r} was renamed to {missing!r}."
        f" {use} to the table again, as an empty {kind}"
    )


def _unmapped_columns(
    session: TableSession, group: StoredGroup, stored: "pa.Schema"
) -> tuple[list[str], list[str]]:
    """The file's columns that the table lacks, and the table's columns that the file lacks."""
    known = {each.lower() for names in group.names.values() for each in names}
    known |= {each.lower() for each in session.table.renamed}
    in_file = {name.lower(): name for name in (*group.partition_columns, *stored.names)}
    unknown = list[str]()
    for name in sorted(in_file.keys() - known):
        if not name.startswith(_DELTA_PREFIXES):
            unknown.append(in_file[name])
    missing = list[str]()
    for column, names in group.names.items():
        if all(name.lower() not in in_file for name in names):
            missing.append(column)
    return unknown, missing


def _unmapped_fields(
    schema: "StructType", group: StoredGroup, stored: "pa.Schema"
) -> Iterable[tuple[str, str]]:
    """Pairs of a field that the table lacks and a field that the file lacks: one pair per column.

    A field of the file was dropped if another field of the table now has its name. It is ignored.
    """
    in_file = {field.name.lower(): field for field in stored}
    for column, names in group.names.items():
        table_paths = [*_paths(schema[column].dataType, _parts_in_spark)]
        expected_paths = [*_paths(stored_type(schema, column, group), _parts_in_spark)]
        for name in names:
            field = in_file.get(name.lower())
            if field is None:
                continue
            file_paths = {*_paths(field.type, _parts_in_arrow)}
            unknown = sorted(file_paths.difference(table_paths, expected_paths))
            missing = list[FieldPath]()
            for table_path, expected_path in zip(table_paths, expected_paths, strict=True):
                if expected_path not in file_paths:
                    missing.append(table_path)
            if unknown and missing:
                yield ".".join((column, *unknown[0])), ".".join((column, *missing[0]))


def _paths(type_: T, parts_of: Callable[[T], Iterable[tuple[str, T]]]) -> Iterator[FieldPath]:
    """The paths of all fields inside a type, in lower case."""
    for name, inner in parts_of(type_):
        yield (name.lower(),)
        yield from ((name.lower(), *rest) for rest in _paths(inner, parts_of))


def _parts_in_arrow(type_: "pa.DataType") -> Iterable[tuple[str, "pa.DataType"]]:
    import pyarrow as pa

    if pa.types.is_struct(type_):
        return [(field.name, field.type) for field in type_]
    if pa.types.is_map(type_):
        return [("key", type_.key_type), ("value", type_.item_type)]
    if isinstance(type_, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        return [("element", type_.value_type)]
    return []


def _parts_in_spark(type_: "DataType") -> Iterable[tuple[str, "DataType"]]:
    from pyspark.sql.types import ArrayType, MapType, StructType

    match type_:
        case StructType():
            return [(field.name, field.dataType) for field in type_.fields]
        case MapType():
            return [("key", type_.keyType), ("value", type_.valueType)]
        case ArrayType():
            return [("element", type_.elementType)]
        case _:
            return []


def stored_type(schema: "StructType", column: str, group: StoredGroup) -> "DataType":
    """The type of a column in the files. Its fields may have other names than in the table."""
    return renamed_fields(schema[column].dataType, (column,), group.field_names)


def renamed_fields(
    type_: "DataType", path: FieldPath, names: Mapping[FieldPath, str]
) -> "DataType":
    """The type with the fields at these paths renamed, and everything in it nullable."""
    from pyspark.sql.types import ArrayType, MapType, StructField, StructType

    inner = {
        name: renamed_fields(part, (*path, name), names) for name, part in _parts_in_spark(type_)
    }
    match type_:
        case StructType():
            return StructType(
                [StructField(names.get((*path, name), name), part) for name, part in inner.items()]
            )
        case MapType():
            return MapType(inner["key"], inner["value"])
        case ArrayType():
            return ArrayType(inner["element"])
        case _:
            return type_
