"""Declarations of tables that other programs write: `adopted.toml`, and calls of `maintain`.

`adopted.toml` has an entry for each table that this lake maintains:

["silver/orders"]
uri = "s3://warehouse/sales/orders"

`maintain` adds the upkeep of existing tables to another Dagster project. The command line does not
load that project. It reads the declarations of the tables from a JSON record in their lake.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.paths import parse_address
from lakehouse.base.settings import NO_TABLES
from lakehouse.declare.knobs import changed_fields, check_words, declared_as
from lakehouse.declare.policies import (
    Archive,
    BinPacking,
    BySensor,
    Compaction,
    LiquidClustering,
    Scheduled,
    Ttl,
    Vacuum,
    ZOrder,
)
from lakehouse.declare.table import Adopted, Table

# The options whose value is an inline table, and the class that it declares.
_RETENTION: Mapping[str, type[Archive | Ttl]] = {"archive": Archive, "ttl": Ttl}
_WORDS = ("uri", "orphans", "cluster_by", "engine", *_RETENTION)


def parse_adopted(text: str, *, name: str) -> dict[str, Table]:
    """The tables in the file `name`, whose content is `text`, by key.

    Raises:
        Refused: the file is not TOML, or an entry is not valid.
    """
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(
            f"{name} is not TOML: {error}. Use entries like those that lakehouse adopt writes"
        ) from error
    return {key: _table(key, entry, name=name) for key, entry in entries.items()}


def adopted_lines(table: Table) -> str:
    """The entry of a table to adopt, as lines of TOML: `uri`, and `cluster_by` if it is clustered.

    People add the other options.
    """
    assert table.adopted
    layout = table.compaction.data_layout
    lines = [f"[{toml_text(table.key)}]", f"uri = {toml_text(table.adopted.uri)}"]
    if isinstance(layout, LiquidClustering):
        lines.append(f"cluster_by = [{', '.join(map(toml_text, layout.columns))}]")
    return "".join(f"{line}\n" for line in lines)


def adopted_table(
    key: str,
    uri: str,
    *,
    orphans: Any = "keep",
    cluster_by: tuple[str, ...] = (),
    engine: Any = "auto",
    **retention: Any,
) -> Table:
    """Declares a table that other programs write, with its layer's defaults for the other knobs.

    `retention` may have an `archive` or a `ttl`.
    """
    layout = LiquidClustering(columns=cluster_by) if cluster_by else BinPacking()
    adopted = Adopted(uri=uri, orphans=orphans)
    return Table(
        key=key,
        write=adopted,
        compaction=Compaction(data_layout=layout, engine=engine),
        description=f"Written by other programs, at {uri}.",
        **retention,
    )


def toml_text(text: str) -> str:
    """The text as a TOML string.

    Source: TOML 1.0, "String": the escapes of JSON are valid, and DEL must be escaped, too.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _table(key: str, entry: Any, *, name: str) -> Table:
    """The table that an entry of the file `name` declares."""
    if not isinstance(entry, dict):
        raise Refused(f"{name}: {key} is {entry!r}. Use an entry [{toml_text(key)}] with uri = …")
    words = cast("Mapping[str, Any]", entry)
    hint = '; the key of an entry is quoted, for example ["silver/orders"]'
    check_words(f"{name}: {key}", words, _WORDS, hint)
    uri = words.get("uri")
    columns = words.get("cluster_by", [])
    if not isinstance(uri, str) or not (uri.startswith("/") or "://" in uri):
        raise Refused(
            f"{name}: {key} has uri = {uri!r}. Use an absolute folder, or s3://bucket/folder"
        )
    if not isinstance(columns, list):
        raise Refused(f"{name}: {key} has cluster_by = {columns!r}. Use a list of columns")
    cluster_by = tuple(cast("list[str]", columns))  # `LiquidClustering` checks the names
    options = {word: words[word] for word in ("orphans", "engine") if word in words}
    try:
        for word, kind in _RETENTION.items():
            if word in words:
                options[word] = declared_as(kind, words[word])
        address = parse_address(uri, base="/")
        return adopted_table(key, address, cluster_by=cluster_by, **options)
    except Refused as error:
        raise Refused(f"{name}: {error}") from error


# The folder of the records, below the lake's root.
MAINTAINED = "_lakehouse/maintained"
# The default settings of a project that calls `maintain`. Each run opens its own Spark driver, so
# that only `dagster dev` has to be started. The demo is off, and no package declares tables.
_PROJECT_DEFAULTS = {
    "LAKEHOUSE_SPARK": "local[2]",
    "LAKEHOUSE_REPLAY": "off",
    "LAKEHOUSE_TABLES": NO_TABLES,
}
# The classes of a record's values, by the `kind` that it gives them.
_KINDS: Mapping[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Adopted, Compaction, Vacuum, Archive, Ttl),
        *(BySensor, Scheduled, BinPacking, LiquidClustering, ZOrder),
    )
}


def maintained_table(key: str, write: Adopted, **policies: Any) -> Table:
    """The declaration of one table of a `maintain` call. `policies` are fields of a `Table`."""
    description = f"The table of {'/'.join(write.asset_key)}, at {write.uri}."
    return Table(key=key, write=write, description=description, **policies)


def is_maintained(table: Table) -> bool:
    """Whether the table belongs to a `maintain` call, so an asset of that project writes it."""
    return table.adopted is not None and bool(table.adopted.asset_key)


def maintained_document(tables: Sequence[Table], *, home: str) -> dict[str, Any]:
    """The record of these tables, without knobs that have default values.

    `home` is the project's LAKEHOUSE_HOME. It is recorded for people; the program does not read it.
    """
    return {"home": home, "tables": {table.key: _plain_fields(table) for table in tables}}


def parse_maintained(document: Any, *, name: str) -> dict[str, Table]:
    """The tables in the record `name`, by key.

    Raises:
        Refused: the record lacks a field, or has a knob or a value that this version does not
            accept.
    """
    tables = dict[str, Table]()
    key = "the record"
    try:
        for key, entry in document["tables"].items():
            tables[key] = Table(**_values(entry))
    except (Refused, KeyError, TypeError, AttributeError) as error:
        problem = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        raise Refused(
            f"{name}: {key}: {problem}. The Dagster project that wrote this record has another "
            "version of lakehouse. Use the project's version here, or update lakehouse in the "
            "project and reload its code location"
        ) from error
    return tables


def with_project_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables, with the defaults of a project that calls `maintain`.

    An empty variable does not replace a default.
    """
    defaults = {name: environ.get(name) or value for name, value in _PROJECT_DEFAULTS.items()}
    return {**environ, **defaults}


def _plain_fields(declared: Any) -> dict[str, Any]:
    """The fields of a declaration that differ from their defaults. `_values` is the inverse."""
    return {name: _plain(value) for name, value in changed_fields(declared).items()}


def _plain(value: Any) -> Any:
    """A declaration, or the value of a knob, as a JSON value. `_value` is the inverse."""
    if isinstance(value, tuple):
        return [_plain(each) for each in cast("tuple[Any, ...]", value)]
    return {"kind": type(value).__name__, **_plain_fields(value)} if is_dataclass(value) else value


def _values(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in entry.items()}


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(each) for each in cast("list[Any]", value))
    if isinstance(value, dict):
        parts = _values(cast("dict[str, Any]", value))
        return _KINDS[parts.pop("kind")](**parts)
    return value
