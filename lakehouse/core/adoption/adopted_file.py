"""`adopted.toml`: the tables that other programs write, with one short entry each.

["silver/orders"]
uri = "s3://warehouse/sales/orders"
writers = "unknown"
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

from lakehouse.core.declaration.adopted import Adopted, parse_address
from lakehouse.core.declaration.archive import Archive, Ttl
from lakehouse.core.declaration.compaction_policy import BinPacking, Compaction, LiquidClustering
from lakehouse.core.declaration.knobs import declared_as
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.core.text import nearest_words

_RETENTION: Mapping[str, type[Archive | Ttl]] = {"archive": Archive, "ttl": Ttl}
_WORDS = ("uri", "writers", "orphans", "cluster_by", "engine", *_RETENTION)


def parse_adopted(text: str, *, name: str) -> dict[str, Table]:
    """The tables in the file `name`, by key.

    Raises:
        Refused: an entry is not valid; the message names it.
    """
    try:
        entries = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Refused(
            f"{name} is not TOML: {error}. Use entries like those that lakehouse adopt writes"
        ) from error
    tables = {key: _table(key, entry, name=name) for key, entry in entries.items()}
    keys: dict[str, str] = {}  # by address
    for key, table in tables.items():
        assert isinstance(table.write, Adopted)
        if (other := keys.setdefault(table.write.uri, key)) != key:
            raise Refused(f"{name}: {other} and {key} are both at {table.write.uri}. Use one key")
    return tables


def adopted_lines(table: Table) -> str:
    """The entry of an adopted table, as TOML."""
    assert isinstance(table.write, Adopted)
    layout = table.compaction.data_layout
    clustered = (
        f"cluster_by = [{', '.join(map(toml_text, layout.columns))}]\n"
        if isinstance(layout, LiquidClustering)
        else ""
    )
    orphans = (
        f"orphans = {toml_text(table.write.orphans)}\n" if table.write.orphans != "keep" else ""
    )
    engine = table.compaction.engine
    compacted_by = f"engine = {toml_text(engine)}\n" if engine != "auto" else ""
    uri = toml_text(table.write.uri)
    writers = toml_text(table.write.writers)
    retention = "".join(
        f"{word} = {_inline_table(declared)}\n"
        for word in _RETENTION
        if (declared := getattr(table, word)) is not None
    )
    rest = f"{orphans}{clustered}{compacted_by}{retention}"
    return f"[{toml_text(table.key)}]\nuri = {uri}\nwriters = {writers}\n{rest}"


def adopted_table(
    key: str,
    uri: str,
    *,
    writers: Any = "unknown",
    orphans: Any = "keep",
    cluster_by: tuple[str, ...] = (),
    engine: Any = "auto",
) -> Table:
    """Declares a table that other programs write, with the default upkeep of its layer."""
    layout = LiquidClustering(columns=cluster_by) if cluster_by else BinPacking()
    adopted = Adopted(uri=uri, writers=writers, orphans=orphans)
    return Table(
        key=key,
        write=adopted,
        compaction=Compaction(data_layout=layout, engine=engine),
        description=f"Written by other programs, at {uri}.",
    )


def toml_text(text: str) -> str:
    """The text as a TOML string.

    Source: TOML 1.0, "String": JSON's escapes, and no raw DEL.
    """
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _inline_table(declared: Archive | Ttl) -> str:
    """The knobs that differ from their defaults, as an inline table of TOML."""
    values = {each.name: getattr(declared, each.name) for each in fields(declared)}
    defaults = {each.name: each.default for each in fields(declared)}
    texts = [
        f"{name} = {toml_text(value) if isinstance(value, str) else value}"
        for name, value in values.items()
        if value != defaults[name]
    ]
    return f"{{{', '.join(texts)}}}"


def _table(key: str, entry: Any, *, name: str) -> Table:
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
    rest = {word: words[word] for word in ("writers", "orphans", "engine") if word in words}
    try:
        address = parse_address(uri, base="/")
        table = adopted_table(key, address, cluster_by=tuple(cast("list[str]", columns)), **rest)
        retention: dict[str, Any] = {
            word: declared_as(kind, words[word])
            for word, kind in _RETENTION.items()
            if word in words
        }
        return replace(table, **retention)
    except Refused as error:
        raise Refused(f"{name}: {error}") from error
