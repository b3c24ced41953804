"""The tables of a project's assets: their addresses and pools, for `maintain`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse.core.adoption.maintained import Upkeep, maintained_table
from lakehouse.core.declaration.adopted import Adopted, Orphans, key_of, parse_address
from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused

URI_KEYS = ("dagster/uri", "uri")
# How addresses of Delta tables begin. Source: Delta Lake 4.4.0, docs, "Storage configuration"
_STORAGE_PREFIXES = ("s3", "file:", "gs:", "abfs", "wasb", "adl:", "hdfs:", "dbfs:", "oci:", "cos")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table of the project, and the asset that writes the table.

    `pool` is the pool of the asset, so that the asset and its upkeep run one at a time. It is empty
    if the asset has none, or if only its key is known.
    """

    asset_key: dg.AssetKey
    uri: str
    pool: str = ""


def written_tables(tables: Mapping[str, str] | Iterable[Any]) -> Iterable[WrittenTable]:
    """The tables of a mapping, or of the assets that have an address in their metadata.

    Raises:
        Refused: an item is not an asset.
    """
    if isinstance(tables, Mapping):
        for key, uri in tables.items():
            yield WrittenTable(asset_key=dg.AssetKey.from_user_string(key), uri=uri)
        return
    for asset in tables:
        specs = [asset]
        pool = ""
        if isinstance(asset, dg.AssetsDefinition):
            specs = asset.specs
            if asset.is_executable:
                pool = getattr(asset.node_def, "pool", None) or ""
        elif not isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            raise Refused(
                f"maintain: {asset!r} is not an asset. Use assets, or a mapping of asset keys to "
                "addresses"
            )
        for spec in specs:
            uri = _uri_in(spec.metadata)
            if uri is not None:
                yield WrittenTable(asset_key=spec.key, uri=uri, pool=pool)


def adopted_table(table: WrittenTable, *, orphans: Orphans, base: str) -> Adopted:
    """The declaration of a table's address.

    A relative address is resolved against the folder `base`.
    """
    try:
        address = parse_address(table.uri, base=base)
    except Refused as refused:
        raise Refused(
            f"maintain: asset {table.asset_key.to_user_string()}: {refused}. If its table is "
            "stored elsewhere, leave this asset out of the call"
        ) from None
    return Adopted(
        uri=address,
        orphans=orphans,
        asset_key=tuple(table.asset_key.path),
        pool=table.pool,
    )


def maintained_by_key(
    adopted: Sequence[Adopted], upkeep: Upkeep, *, layer: str
) -> dict[str, Table]:
    """The tables' declarations by key, which is the layer and the asset's key (`_` for `/`).

    Raises:
        Refused: two assets have the same key.
    """
    tables = dict[str, Table]()
    assets = dict[str, str]()
    for each in adopted:
        asset = "/".join(each.asset_key)
        key = key_of(f"/{layer}/{'_'.join(each.asset_key)}", ())
        if key in tables:
            raise Refused(
                f"maintain: assets {assets[key]} and {asset} would both be the table {key}. Pass "
                "one of them to a separate call, with another layer"
            )
        tables[key] = maintained_table(key, each, upkeep)
        assets[key] = asset
    return tables


def _uri_in(metadata: Mapping[str, Any]) -> str | None:
    """The address of a Delta table in an asset's metadata, or `None`.

    Addresses of warehouses and web pages are ignored. An address in a storage that Delta supports
    and this program does not is returned, so that the caller refuses it.
    """
    for name in URI_KEYS:
        value = metadata.get(name)
        if isinstance(value, dg.MetadataValue):
            value = value.value
        if not isinstance(value, str | Path):
            continue
        address = str(value)
        if "://" not in address or address.startswith(_STORAGE_PREFIXES):
            return address
    return None
