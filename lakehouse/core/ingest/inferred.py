"""Infers the schema of landed files from the first batch, if the declaration has none.

The schema is inferred only once and then pinned: the batch's manifest records its columns in the
same way as added columns. From then on, it is used like a declared schema.

**Safety properties** (tests in `core/ingest/test_inferred.py`)
- A pinned schema is used as it was recorded. It is never inferred a second time.
- Nothing is loaded if the declaration gives a pinned column another type, or if the declaration
  lacks the schema with which earlier files were loaded.
- A renamed column stays in the manifest under its earlier name. Its values are loaded under its
  present name.
- A text value of a file becomes text in the table, and all CSV fields become text. Text is not
  parsed as another type.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice

from lakehouse.core.declaration.change_sources import Dms
from lakehouse.core.declaration.column_names import field_names, field_types
from lakehouse.core.declaration.landing import Landing
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.core.ingest.csv_records import csv_names, others_in_header
from lakehouse.core.ingest.records import Record, RenamedLanding, Unreadable, earlier_names
from lakehouse.core.ingest.undeclared import RESCUED, AddedColumn, NewColumns

INFERRED = "infer"
GIVES_NO_SCHEMA = (
    "no schema is declared, and none can be inferred from this file: it has no record with a field"
    ", or its CSV header names a column twice, or no name of a field is valid for a column. Either "
    "land the file again, or declare Landing.schema"
)
_SAME_TYPES = {"LONG": "BIGINT", "TIMESTAMP_LTZ": "TIMESTAMP"}
_TYPE = re.compile(r"\w+(?:\s*\([\d\s,]*\))?")


def landing_to_infer(landing: Landing) -> Landing:
    """The landing with which files are read for `infer_columns`. `landing` declares no schema.

    All fields of the records count as undeclared. A CSV header is read as the first record.
    """
    if not landing.records_are_csv:
        return landing
    csv = replace(landing.csv, header=False)
    return replace(landing, schema="header STRING", csv=csv, required=(), derived={})


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFile:
    """A file of the first batch, read with `landing_to_infer`.

    `types` maps its columns to their types, if its format records them (Parquet and Avro).
    """

    path: str
    records: Iterator[Record]
    types: Mapping[str, str] | None = None


def infer_columns(
    files: Iterable[FirstFile], landing: Landing, at_ms: int
) -> tuple[AddedColumn, ...]:
    """The columns of these files, by the rules of `NewColumns`; empty if no record has a field.

    For CSV, the first usable header gives the columns. A usable header has a record below it, names
    each column once, and has at least one name that is valid for a column. A file of a format with
    recorded types is used only if it has a record. A field whose name is not valid gives no column
    here; `new_columns` decides what happens to it.
    """
    new = NewColumns(landing=replace(landing, new_columns="add"), known=())
    for file in files:
        try:
            _add_columns(new, file, landing)
        except Unreadable:
            continue  # when this file is staged, it is set aside with the reason
    return tuple(
        replace(column, policy=INFERRED) for column in new.columns(at_ms) if column.name != RESCUED
    )


def _add_columns(new: NewColumns, file: FirstFile, landing: Landing) -> None:
    if landing.records_are_csv:
        has_columns = bool(new.kinds.keys() - {RESCUED})
        if not has_columns:
            names = _header(file.records, landing)
            new.see_types(dict.fromkeys(names, "STRING"), file.path)
    elif file.types is not None:
        present = earlier_names(landing)
        if has_record(file.records, landing):
            for name, type_ in file.types.items():
                new.see_types({present.get(name, name): type_}, file.path)
    else:
        for record in file.records:
            if record.undeclared is not None and record.problem is None:
                new.see(record.undeclared, file.path)


def has_record(records: Iterator[Record], landing: Landing) -> bool:
    """Whether a file that was read with `landing_to_infer` has a record, not counting a header."""
    needed_count = 2 if landing.records_are_csv else 1
    return len([*islice(records, 2)]) >= needed_count


def with_earlier_names(landing: Landing, renamed: Mapping[str, str]) -> Landing:
    """The landing for files that may still have the earlier names of the `renamed` columns."""
    if not renamed:
        return landing
    # Files have no derived columns, under any name.
    names = {old: new for old, new in renamed.items() if new not in landing.derived}
    if isinstance(landing.changes, Dms):
        # A renamed column's before-image has the new name, too.
        prefix = landing.changes.before_prefix
        declared = field_names(landing.schema)
        images = {f"{prefix}{old}": f"{prefix}{new}" for old, new in names.items()}
        names |= {old: new for old, new in images.items() if new in declared}
    declaration = {each.name: getattr(landing, each.name) for each in fields(Landing)}
    return RenamedLanding(**declaration, earlier_names=names)


def pinned_landing(landing: Landing, columns: Iterable[AddedColumn]) -> Landing:
    """The landing with its inferred schema as the declared one; unchanged if none was inferred.

    The schema has renamed columns under their present names, including renamed columns that were
    added for undeclared fields.

    Raises:
        Refused: a column's declared name or type differs from the pinned schema, or the pinned
            schema is not accepted.
    """
    present = earlier_names(landing)
    by_name = dict[str, AddedColumn]()  # by present name
    for column in columns:
        name = present.get(column.name, column.name)
        # If both names were recorded, the column that has the present name is used.
        if name == column.name or name not in by_name:
            by_name[name] = column
    pinned = {name: each for name, each in by_name.items() if each.policy == INFERRED}
    if landing.schema is None and pinned:
        renamed = {name: each for name, each in by_name.items() if name in present.values()}
        ddl = ", ".join(
            f"{_quoted(name)} {column.type}" for name, column in {**pinned, **renamed}.items()
        )
        try:
            return replace(landing, schema=ddl)
        except Refused as error:
            first = next(iter(pinned.values()))
            raise Refused(f"with the schema inferred from {first.file}: {error}") from error
    declared = {
        name.lower(): (name, _plain_type(type_)) for name, type_ in field_types(landing.schema)
    }
    for present_name, column in pinned.items():
        expected = (present_name, column.type)
        name, type_ = declared.get(present_name.lower(), expected)
        if (name, type_) != expected:
            raise Refused(
                f"Landing.schema declares {name} {type_}; the schema that was inferred from "
                f"{column.file} and pinned has {column.name} {column.type}. Either declare "
                f"{_quoted(present_name)} {column.type}, or remove schema="
            )
    return landing


def pinned_table(table: Table, columns: Sequence[AddedColumn], *, is_loaded: bool = False) -> Table:
    """The table with its `pinned_landing`, which also accepts earlier names of renamed columns.

    Raises:
        Refused: the declaration and the pinned schema differ, or files were loaded with a schema
            that is no longer declared.
    """
    try:
        landing = pinned_landing(with_earlier_names(table.landing, table.renamed), columns)
        if landing.schema is None and is_loaded:
            raise Refused(
                "no schema is declared, and files were loaded with one. Restore Landing.schema"
            )
        return replace(table, source=landing)
    except Refused as error:
        raise Refused(f"load of {table.key}: {error}") from error


def _header(records: Iterator[Record], landing: Landing) -> list[str]:
    """The names in a CSV file's header.

    Empty if the file has no record below the header, or if the header names a column twice.
    """
    first_two = [*islice(records, 2)]
    names = [] if len(first_two) < 2 else csv_names(first_two[0].content, landing)
    return [] if others_in_header(names, ()) is None else names


def _plain_type(text: str) -> str:
    """A declared type without blanks, and without any text after it, for example a comment."""
    match = _TYPE.match(text)
    plain = "" if match is None else "".join(match[0].split()).upper()
    return _SAME_TYPES.get(plain, plain)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
