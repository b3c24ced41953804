"""The texts of a project for one table of landed files, with notes on what was guessed."""

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass, replace
from itertools import combinations, takewhile
from keyword import iskeyword
from pathlib import PurePosixPath
from typing import Any, cast

from lakehouse.base.frozen import frozen
from lakehouse.base.text import Document, first_names, object_of, printable
from lakehouse.declare.knobs import changed_fields
from lakehouse.declare.landing import ChangeSource, Debezium, Dms, Landing, format_of
from lakehouse.declare.table import Append, Merge, Table
from lakehouse.land.plan.schema_of_values import FileSchema, json_schema, quoted, schema_of_types

# Source: AWS DMS user guide, "Using Amazon S3 as a target": names of full load and change files.
DMS_FILE = re.compile(r"LOAD[0-9A-F]+|[0-9]{8}-[0-9]{9}", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}")
_OPERATION = Dms().operation
# Where the order of changes is not in the fields that Debezium() reads.
_POSITIONS = {"commit_lsn": "commit_lsn STRING, change_lsn STRING", "scn": "scn BIGINT"}
# The SQL types of Kafka Connect's types, by their semantic name or by their plain one.
# Source: Debezium's reference, "Data type mappings"
_CONNECT_TYPES = {
    "Date": "DATE",
    **dict.fromkeys(("Timestamp", "MicroTimestamp", "ZonedTimestamp"), "TIMESTAMP"),
    "VariableScaleDecimal": "DECIMAL(38,10)",
    **dict.fromkeys(("int8", "int16", "int32", "int64"), "BIGINT"),
    **dict.fromkeys(("float", "double"), "DOUBLE"),
    "boolean": "BOOLEAN",
    "bytes": "BINARY",
}


@frozen
class Suggestion:
    """A table for files. The notes name what was guessed, for a person to check."""

    table: Table
    notes: tuple[str, ...]


def suggest(found: FileSchema, files: Sequence[str], *, key: str, prefix: str) -> Suggestion:
    """The table for files of this schema. `files` are their names."""
    has_types = any("payload" in row for row in found.rows)
    found, changes = _debezium(found) or _dms(found, files) or (found, None)
    source = Landing(
        prefix=prefix,
        format=found.format,
        schema=found.ddl,
        csv=found.csv,
        null_value=found.null_value,
        encoding=found.encoding,
        changes=changes,
    )
    notes = list[str]()
    if doubles := [name for name, type_ in found.types.items() if type_ == "DOUBLE"]:
        notes.append(f"DOUBLE rounds. Use DECIMAL(12,2) for money: {first_names(doubles)}.")
    cells = [cell for row in found.rows for cell in row.items()]
    if dates := dict.fromkeys(name for name, value in cells if _DATE.fullmatch(str(value))):
        columns = [quoted(found.renamed.get(name, name)) for name in dates]
        notes.append(
            f"Dates like 31.12.2026 are loaded as text: {first_names(columns)}. In silver.py, use"
            f" \"to_date({columns[0]}, 'd.M.yyyy') AS {columns[0]}\"."
        )
    if found.left_out:
        names = first_names(found.left_out)
        notes.append(f"Names that cannot be columns, whose values are kept in _rescued: {names}.")
    if not found.csv.header:
        notes.append("Without a header, the names of the columns are made up. Write better ones.")
    write = Append()
    if changes is not None:
        write = Merge(keys=_likely_keys(key.partition("/")[2], found))
        notes.append(
            f"The files do not name the primary key. A guess is {first_names(write.keys)}: check"
            " keys= before the first load, since the table keeps it."
        )
    if isinstance(changes, Debezium) and not has_types:
        notes.append(
            "Lines without a schema have times as numbers, and decimals as Base64 or text: see"
            " docs/cdc-sources.md#debezium-types."
        )
    if isinstance(changes, Dms) and not changes.position:
        notes.append(
            "Without position=, changes are ordered by file and line. Let the DMS task add"
            " $AR_H_CHANGE_SEQ as a column."
        )
    table = Table(key=key, source=source, write=write, renamed={**found.renamed})
    return Suggestion(table=table, notes=tuple(notes))


def _likely_keys(table: str, found: FileSchema) -> tuple[str, ...]:
    """One or two columns that look like a key by their names, with different values in all rows."""
    own = ("id", f"{table}_id", f"{table.removesuffix('s')}_id")
    columns = [name for name in found.types if name != _OPERATION]
    ids = [name for name in columns if name.lower().endswith("id")]
    ids.sort(key=lambda name: name.lower() not in own)
    name_in_rows = {column: name for name, column in found.renamed.items()}
    candidates = [(name,) for name in (*ids, columns[0])] + [*combinations(columns[:4], 2)]
    for keys in candidates:
        names = [name_in_rows.get(key, key) for key in keys]
        values = [repr([row.get(name) for name in names]) for row in found.rows]
        if len({*values}) == len(values):
            return keys
    return candidates[0]


def _debezium(found: FileSchema) -> tuple[FileSchema, ChangeSource] | None:
    """The schema of the rows in events of Debezium; `None` if there are no such events."""
    lines = [row for row in found.rows if row.get("payload", row) is not None]
    events = [object_of(line.get("payload", line)) for line in lines]
    is_wrapped = all("op" in each and {"before", "after"} & each.keys() for each in events)
    is_unwrapped = all({"__op", "__deleted"} & each.keys() for each in events)
    if found.format != "json" or not events or not (is_wrapped or is_unwrapped):
        return None
    rows = events
    fields = _fields_of(lines[-1].get("schema"))
    order = events[-1]
    if is_wrapped:
        rows = [object_of(each.get("after") or each.get("before")) for each in events]
        fields = _fields_of(fields.get("after"))
        order = object_of(order.get("source"))
    types = {name: _connect_type(field) for name, field in fields.items()}
    schema = schema_of_types("json", types) if types else json_schema(rows)
    # An unwrapped row has fields of its event, like `__op`. No column begins with `_`.
    left_out = tuple(name for name in schema.left_out if not name.startswith("__"))
    positions = [_POSITIONS.get(name.removeprefix("__source_"), "") for name in order]
    changes = Debezium(unwrapped=not is_wrapped, position=max(positions, default=""))
    operations = [event.get("op", event.get("__op")) for event in events]
    # After a deletion, its key may be inserted again.
    before_deletion = takewhile(lambda pair: pair[0] != "d", zip(operations, rows, strict=True))
    inserts = [row for operation, row in before_deletion if operation in ("c", "r")]
    return replace(schema, left_out=left_out, rows=inserts, encoding=found.encoding), changes


def _fields_of(schema: Any) -> dict[str, Document]:
    """The fields in a struct's schema of Kafka Connect, by name; empty without a schema."""
    fields = map(object_of, object_of(schema).get("fields") or ())
    return {str(field.get("field")): field for field in fields}


def _connect_type(field: Document) -> str:
    """The SQL type of a field of Kafka Connect. A struct is kept as text."""
    if field.get("type") == "array":
        return f"ARRAY<{_connect_type(object_of(field.get('items')))}>"
    name = str(field.get("name")).rpartition(".")[2]
    if name == "Decimal":
        parameters = object_of(field.get("parameters"))
        digits = parameters.get("connect.decimal.precision", 38)
        return f"DECIMAL({digits},{parameters.get('scale', 0)})"
    return _CONNECT_TYPES.get(name) or _CONNECT_TYPES.get(str(field.get("type")), "STRING")


def _dms(found: FileSchema, files: Sequence[str]) -> tuple[FileSchema, ChangeSource] | None:
    """The schema with the operation first; `None` if AWS DMS did not write the files."""
    is_named = all(DMS_FILE.fullmatch(PurePosixPath(file).name.partition(".")[0]) for file in files)
    operation = _OPERATION if found.csv.header else next(iter(found.types))
    codes = {row.get(operation) or "" for row in found.rows}
    has_operation = operation in found.types and codes <= {"", *Dms.codes}
    if found.format == "json" or not (is_named or (has_operation and found.csv.header)):
        return None
    types = {
        name: type_ for name, type_ in found.types.items() if not has_operation or name != operation
    }
    position = tuple(name for name in types if name.lower().endswith("change_seq"))
    null_value = found.null_value
    if found.format == "csv":
        null_value = null_value or "NULL"
    schema = replace(found, types={_OPERATION: "STRING", **types}, null_value=null_value)
    return schema, Dms(position=position)


_WIDTH = 100
# These are written with one argument per line, so that they are easy to edit.
_SPREAD = (Table, Landing)


def python_text(text: str) -> str:
    """A text as a Python literal. Every name that reaches Python source passes here."""
    literal = repr(text)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def python_source(lead: str, value: Any, *, indent: int = 0, end: str = "") -> list[str]:
    """The lines of `lead`, the Python source of a value, and `end`."""
    margin = " " * indent
    line = f"{margin}{lead}{_one_line(value)}{end}"
    opening, parts, closing = _parts(value)
    is_short = len(line) <= _WIDTH and not isinstance(value, _SPREAD)
    if is_short or not parts:
        return [line]
    # Parts of a text are concatenated, without a comma between them.
    part_end = "" if isinstance(value, str) else ","
    lines = [f"{margin}{lead}{opening}"]
    for part_lead, part in parts:
        lines += python_source(part_lead, part, indent=indent + 4, end=part_end)
    return [*lines, f"{margin}{closing}{end}"]


def _one_line(value: Any) -> str:
    if isinstance(value, str):
        return python_text(value)
    opening, parts, closing = _parts(value)
    if not opening:
        return repr(value)
    comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
    return f"{opening}{', '.join(lead + _one_line(part) for lead, part in parts)}{comma}{closing}"


def _parts(value: Any) -> tuple[str, Sequence[tuple[str, Any]], str]:
    """What opens a value, the leads and values of its parts, and what closes it."""
    match value:
        case str():
            pieces = re.split(r"(?<=, )", value)
            return "(", [("", piece) for piece in pieces if len(pieces) > 1], ")"
        case tuple():
            return "(", [("", part) for part in cast("tuple[Any, ...]", value)], ")"
        case dict():
            items = cast("Document", value).items()
            return "{", [(f"{python_text(name)}: ", part) for name, part in items], "}"
        case _ if is_dataclass(value):
            parts = [(f"{name}=", part) for name, part in changed_fields(value).items()]
            return f"{type(value).__name__}(", parts, ")"
        case _:
            return "", [], ""


_DECLARING = ("Append", "Csv", "Debezium", "Dms", "Landing", "Merge", "Table")
_ENV = """\
# Settings. In this folder, lakehouse and dagster dev read them, and they go before variables of
# the environment. All settings: lakehouse doctor --settings
LAKEHOUSE_HOME=.lakehouse
LAKEHOUSE_ROOT={root}
LAKEHOUSE_TABLES={package}
LAKEHOUSE_REPLAY=off
# Next to another lake that runs on this machine (for dagster dev: -p 3001):
# LAKEHOUSE_PORT=3001
# LAKEHOUSE_SPARK_PORT=15003
"""
_GITIGNORE = """\
.lakehouse/
.tmp_dagster_home_*/
__pycache__/
"""
_PYPROJECT = """\
[project]
name = "{package}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["lakehouse[s3,spark]"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
packages = ["{package}"]

# Read by dagster dev and dg. LAKEHOUSE_TABLES in .env names the package with the tables.
[tool.dg]
directory_type = "project"

[tool.dg.project]
root_module = "{package}"
code_location_name = "{package}"
code_location_target_module = "lakehouse.definitions"
"""
_BRONZE = '''\
"""Bronze: rows as they landed."""

from lakehouse import {names}

{comment}
{table}
'''
_SILVER = '''\
"""Silver: the rows that people use."""

from lakehouse import Overwrite, table
from pyspark.sql import DataFrame

from {package} import bronze


# Change the function: the next run computes all rows again. For a large table, use Append(), or
# Merge(keys=…, order_by=…) for one row per key. They read only new rows, and keep rows that change
# data deletes.
@table(
    key="silver/{name}",
    inputs=[bronze.{name}],
    write=Overwrite(),
    evolution="automatic",
)
def {name}({name}: DataFrame) -> DataFrame:
    """The columns of bronze/{name} that people use."""
    return {name}.selectExpr(
{columns}
    )
'''


def project_texts(
    suggestion: Suggestion, *, package: str, root: str, origin: str
) -> dict[str, str]:
    """The files of a project by their paths.

    `package` is the Python package that declares the tables, `root` the root of their lake, as in
    LAKEHOUSE_ROOT, and `origin` names the files that the suggestion is from.
    """
    table = suggestion.table
    source = "\n".join(python_source(f"{table.name} = ", table))
    sentences = (f"Guessed by lakehouse init from {origin}. Check it.", *suggestion.notes)
    columns = [f"        {python_text(quoted(name))}," for name in table.landing.column_names]
    comment = textwrap.TextWrapper(
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return {
        ".env": _ENV.format(package=package, root=root),
        ".gitignore": _GITIGNORE,
        "pyproject.toml": _PYPROJECT.format(package=package),
        f"{package}/__init__.py": f'"""The tables of {package}."""\n',
        f"{package}/bronze.py": _BRONZE.format(
            names=", ".join(name for name in _DECLARING if f"{name}(" in source),
            comment="\n".join(comment.fill(printable(each)) for each in sentences),
            table=source,
        ),
        f"{package}/silver.py": _SILVER.format(
            package=package, name=table.name, columns="\n".join(columns)
        ),
    }


def package_name(folder: str, is_taken: Callable[[str], bool]) -> str:
    """The Python package of a project in this folder. No other module has its name."""
    name = _plain(folder) or "tables"
    return f"{name}_tables" if iskeyword(name) or is_taken(name) else name


def table_name(places: Iterable[str]) -> str:
    """A name for a table, after the first file or folder whose name has a word.

    Numbers at the end, as of dates and parts, do not count: `Orders-2026-01.csv.gz` gives `orders`.
    The name of a Kafka topic of Debezium ends with the table: `shop.public.orders`.
    """
    for place in places:
        stem = place.strip(".").partition(".")[0]
        if place.count(".") > 1 and not format_of(place):
            stem = place.rpartition(".")[2]
        name = re.sub(r"(_[0-9]+)+$", "", _plain(stem))
        if name and not DMS_FILE.fullmatch(stem) and not iskeyword(name):
            return name
    return "rows"


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_").lstrip("0123456789_")[:90]
