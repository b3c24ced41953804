"""The tables of a project's assets: their addresses, writers and pools, for `maintain`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse.core.adoption.maintained import Upkeep, maintained_table
from lakehouse.core.declaration.adopted import Adopted, Orphans, Writers, key_of, parse_address
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused
from lakehouse.core.text import count_of

URI_KEYS = ("dagster/uri", "uri")
# The storages of Delta tables. Source: Delta Lake 4.4.0, docs, "Storage configuration"
_STORAGES = ("s3", "file:", "gs:", "abfs", "wasb", "adl:", "hdfs:", "dbfs:", "oci:", "cos")
# Assigns one pool to every asset that is defined after this line with `@asset` or `@asset(…)`.
POOL_LINE = 'asset = functools.partial(dg.asset, pool="delta_tables")'


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table of the project, and the asset that writes it.

    `pool` is empty if other code writes the table, and `None` if its asset has no pool.
    """

    asset_key: dg.AssetKey
    uri: str
    pool: str | None


def written_tables(tables: Mapping[str, str] | Iterable[Any]) -> Iterable[WrittenTable]:
    """The tables of a mapping, or of those assets that have an address in their metadata."""
    if isinstance(tables, Mapping):
        for key, uri in tables.items():
            yield WrittenTable(asset_key=dg.AssetKey.from_user_string(key), uri=uri, pool="")
        return
    for asset in tables:
        specs = [asset]
        pool = ""
        if isinstance(asset, dg.AssetsDefinition):
            specs = asset.specs
            pool = getattr(asset.node_def, "pool", None) if asset.is_executable else ""
        elif not isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            raise Refused(
                f"maintain: {asset!r} is not an asset. Use assets, or a mapping of asset keys to "
                "addresses"
            )
        for spec in specs:
            uri = _uri_in(spec.metadata)
            if uri is not None:
                yield WrittenTable(asset_key=spec.key, uri=uri, pool=pool)


def refuse_without_pool(tables: Sequence[WrittenTable]) -> None:
    """Refuses assets whose runs might commit during a compaction.

    The message contains the lines that fix all of them.
    """
    if not tables:
        return
    by_name = {each.asset_key.to_user_string(): each.uri for each in tables}
    raise Refused(
        f'maintain: writers is "none", but {count_of(len(by_name), "asset")} without a pool may '
        f"commit while a compaction runs: {', '.join(by_name)}. Either give each asset its own "
        f"pool, like pool={next(iter(by_name))!r}; or define all of them with @asset after one "
        "line, which makes them take turns: "
        f"`{POOL_LINE}`; or, if you make sure that none of them runs during a compaction, pass "
        f'their addresses: maintain({by_name}, writers="none")'
    )


def adopted_table(table: WrittenTable, *, writers: Writers, orphans: Orphans, base: str) -> Adopted:
    """The declaration of a table's address and writers, relative to the folder `base`."""
    try:
        address = parse_address(table.uri, base=base)
    except Refused as refused:
        raise Refused(
            f"maintain: asset {table.asset_key.to_user_string()}: {refused}. Leave it out of the "
            "call if its table lies elsewhere"
        ) from None
    return Adopted(
        uri=address,
        # Without a pool, only conditional commits keep the asset's runs and Spark apart.
        writers="unknown" if writers == "none" and table.pool is None else writers,
        orphans=orphans,
        asset_key=tuple(table.asset_key.path),
        pool=table.pool or "",
    )


def maintained_by_key(
    adopted: Sequence[Adopted], upkeep: Upkeep, *, layer: str
) -> dict[str, Table]:
    """The declarations by key, which is made of the layer and the asset's key."""
    tables = dict[str, Table]()
    assets = dict[str, str]()
    for each in adopted:
        asset = "/".join(each.asset_key)
        key = key_of(f"/{layer}/{'_'.join(each.asset_key)}", ())
        if key in tables:
            raise Refused(
                f"maintain: {assets[key]} and {asset} would both be {key}. Pass one of them to a "
                "separate call, with another layer"
            )
        tables[key] = maintained_table(key, each, upkeep)
        assets[key] = asset
    return tables


def _uri_in(metadata: Mapping[str, Any]) -> str | None:
    """The address of a table in an asset's metadata. Warehouse and web addresses are ignored.

    An address in an unsupported storage is returned, so that it is refused instead of silently
    ignored.
    """
    for name in URI_KEYS:
        value = metadata.get(name)
        text = value.value if isinstance(value, dg.MetadataValue) else value
        if isinstance(text, str | Path) and (
            "://" not in str(text) or str(text).startswith(_STORAGES)
        ):
            return str(text)
    return None
