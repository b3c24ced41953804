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
# How addresses of Delta tables begin. Source: Delta Lake 4.4.0, docs, "Storage configuration"
_STORAGE_PREFIXES = ("s3", "file:", "gs:", "abfs", "wasb", "adl:", "hdfs:", "dbfs:", "oci:", "cos")
# After this line, `@asset` and `@asset(…)` assign the same pool to each asset.
POOL_LINE = 'asset = functools.partial(dg.asset, pool="delta_tables")'


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table of the project, and the asset that writes the table.

    `pool` is the pool of the asset, and `None` if the asset has no pool. It is empty if the asset
    is not executable, or if only its key is known.
    """

    asset_key: dg.AssetKey
    uri: str
    pool: str | None


def written_tables(tables: Mapping[str, str] | Iterable[Any]) -> Iterable[WrittenTable]:
    """The tables of a mapping, or of the assets that have an address in their metadata.

    Raises:
        Refused: an item is not an asset.
    """
    if isinstance(tables, Mapping):
        for key, uri in tables.items():
            yield WrittenTable(asset_key=dg.AssetKey.from_user_string(key), uri=uri, pool="")
        return
    for asset in tables:
        specs = [asset]
        pool = ""
        if isinstance(asset, dg.AssetsDefinition):
            specs = asset.specs
            if asset.is_executable:
                pool = getattr(asset.node_def, "pool", None)
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
    """Refuses the call if `tables`, the tables whose assets have no pool, is not empty.

    Runs of such assets may commit during a compaction. The message contains the code that fixes all
    of these assets.
    """
    if not tables:
        return
    by_name = {each.asset_key.to_user_string(): each.uri for each in tables}
    raise Refused(
        f'maintain: writers is "none", but {count_of(len(by_name), "asset")} without a pool may '
        f"commit while a compaction runs: {', '.join(by_name)}. Use one of three ways: (1) Give "
        f"each asset its own pool, for example pool={next(iter(by_name))!r}. (2) Let the assets "
        f"run one at a time: add the line `{POOL_LINE}`, and define the assets with @asset after "
        "it. (3) If you make sure that none of the assets runs during a compaction, pass their "
        f'addresses: maintain({by_name}, writers="none")'
    )


def adopted_table(table: WrittenTable, *, writers: Writers, orphans: Orphans, base: str) -> Adopted:
    """The declaration of a table's address and writers.

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
        # Without a pool, only conditional commits keep the asset's runs and Spark apart.
        writers="unknown" if writers == "none" and table.pool is None else writers,
        orphans=orphans,
        asset_key=tuple(table.asset_key.path),
        pool=table.pool or "",
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
