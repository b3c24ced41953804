"""`adopted.toml`: the tables that other programs write and this lake maintains, an entry for each.

["silver/orders"]
uri = "s3://warehouse/sales/orders"
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from lakehouse.base.errors import Refused
from lakehouse.base.paths import parse_address
from lakehouse.base.text import nearest_words
from lakehouse.declare.knobs import declared_as
from lakehouse.declare.policies import Archive, BinPacking, Compaction, LiquidClustering, Ttl
from lakehouse.declare.table import Table
from lakehouse.declare.write_modes import Adopted

# The options whose value is an inline table, and the class that it declares.
_RETENTION: Mapping[str, type[Archive | Ttl]] = {"archive": Archive, "ttl": Ttl}
_WORDS = ("uri", "orphans", "cluster_by", "engine", *_RETENTION)


def parse_adopted(text: str, *, name: str) -> dict[str, Table]:
    """The tables in the file `name`, whose content is `text`, by key.

    Raises:
        Refused: the file is not TOML, an entry is not valid, or two entries have the same address.
    """
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(
            f"{name} is not TOML: {error}. Use entries like those that lakehouse adopt writes"
        ) from error
    tables = {key: _table(key, entry, name=name) for key, entry in entries.items()}
    key_at = dict[str, str]()
    for key, table in tables.items():
        assert isinstance(table.write, Adopted)
        uri = table.write.uri
        if uri in key_at:
            raise Refused(f"{name}: {key_at[uri]} and {key} are both at {uri}. Use one key")
        key_at[uri] = key
    return tables


def adopted_lines(table: Table) -> str:
    """The entry of a table to adopt, as lines of TOML: `uri`, and `cluster_by` if it is clustered.

    People add the other options.
    """
    assert isinstance(table.write, Adopted)
    layout = table.compaction.data_layout
    lines = [f"[{toml_text(table.key)}]", f"uri = {toml_text(table.write.uri)}"]
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
) -> Table:
    """Declares a table that other programs write, with its layer's defaults for the other knobs."""
    layout = LiquidClustering(columns=cluster_by) if cluster_by else BinPacking()
    adopted = Adopted(uri=uri, orphans=orphans)
    return Table(
        key=key,
        write=adopted,
        compaction=Compaction(data_layout=layout, engine=engine),
        description=f"Written by other programs, at {uri}.",
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
    if unknown := [word for word in words if word not in _WORDS]:
        near = nearest_words(unknown[0], _WORDS, most=1)
        raise Refused(
            f"{name}: {key} has {unknown[0]!r}. Use {', '.join(near or _WORDS)}; the key of an "
            'entry is quoted, for example ["silver/orders"]'
        )
    uri = words.get("uri")
    columns = words.get("cluster_by", [])
    if not isinstance(uri, str) or not (uri.startswith("/") or "://" in uri):
        raise Refused(
            f"{name}: {key} has uri = {uri!r}. Use an absolute folder, or s3://bucket/folder"
        )
    if not isinstance(columns, list) or not all(
        isinstance(column, str) for column in cast("list[Any]", columns)
    ):
        raise Refused(f"{name}: {key} has cluster_by = {columns!r}. Use a list of columns")
    cluster_by = tuple(cast("list[str]", columns))
    options = {word: words[word] for word in ("orphans", "engine") if word in words}
    try:
        address = parse_address(uri, base="/")
        table = adopted_table(key, address, cluster_by=cluster_by, **options)
        retention = dict[str, Any]()
        for word, kind in _RETENTION.items():
            if word in words:
                retention[word] = declared_as(kind, words[word])
        return replace(table, **retention)
    except Refused as error:
        raise Refused(f"{name}: {error}") from error
