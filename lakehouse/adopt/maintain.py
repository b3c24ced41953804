"""Upkeep for the Delta tables of any Dagster project: compaction, vacuum, checks and sensors.

`maintain` is a function, and `MaintainedTables` a component for Dagster's `dg` that declares the
same in YAML. The project's own code still writes its assets, and is not changed. State is kept
below the folder `base`, in `.lakehouse/`, or at the addresses in the LAKEHOUSE_ settings.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse.adopt.asset import assessed_table, observation_sensor
from lakehouse.assets.keys import NIGHTLY_CRON, LoadLake, automation_sensor, table_key
from lakehouse.assets.metadata import Metadata, table_metadata
from lakehouse.assets.resources import spark_resource
from lakehouse.base.errors import Refused
from lakehouse.base.installation import has_capability, load_capability
from lakehouse.base.paths import parse_address
from lakehouse.base.settings import Settings, parse_settings
from lakehouse.compact.asset import compaction_asset
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.declare.adopted import maintained_table, with_project_defaults
from lakehouse.declare.knobs import declared_as
from lakehouse.declare.policies import Archive, Compaction, Ttl, Vacuum
from lakehouse.declare.table import Adopted, Orphans, Table, key_of
from lakehouse.lake.declared_tables import checked, other_adopted
from lakehouse.lake.lake import Lake, open_lake
from lakehouse.vacuum.asset import vacuum_asset
from lakehouse.watch.check import health_check

_URI_KEYS = ("dagster/uri", "uri")
# How addresses of Delta tables begin. Source: Delta Lake 4.4.0, docs, "Storage configuration"
_STORAGE_PREFIXES = ("s3", "file:", "gs:", "abfs", "wasb", "adl:", "hdfs:", "dbfs:", "oci:", "cos")
# Not `spark`, because the project's own resource may have that name.
_SPARK = "lakehouse_spark"
# All calls share one resource: the assets of one job may not have two resources with the same name.
_spark = cache(spark_resource)
# The tables of all calls, by the root of their lake. A vacuum keeps each file that any of these
# tables reads, even if the file is in another table's folder.
_TABLES: dict[str, dict[str, Table]] = {}
# The table and lake of each asset of all calls.
_MAINTAINED: dict[dg.AssetKey, tuple[Table, Lake]] = {}


def maintain(
    tables: Mapping[str, str] | Iterable[Any],
    *,
    name: str = "maintenance",
    layer: str = "silver",
    orphans: Orphans = "keep",
    compaction: Compaction | None = None,
    vacuum: Vacuum | None = None,
    archive: Archive | None = None,
    ttl: Ttl | None = None,
    vacuum_cron: str = NIGHTLY_CRON,
    base: str | Path | None = None,
) -> dg.Definitions:
    """The definitions for the upkeep of a project's Delta tables. Merge them into your own.

    `tables` are assets, or a mapping of asset keys (`sales/orders`) to the addresses of their
    tables. Assets without `dagster/uri` or `uri` in their metadata are ignored. The layer's
    defaults apply to all fields that `compaction` does not set. docs/adopt.md explains
    `orphans`. `archive` and `ttl` apply to each table. Sensor names begin with `name`, so that
    a project can call this function several times, each time with another name. Relative addresses
    are resolved against `base` (default: the working folder).

    Raises:
        Refused: no asset has an address, an address is invalid, two assets have the same table or
            key, a setting is not accepted, or archived rows would move from S3 to a disk.
    """
    folder = Path(base or Path.cwd()).resolve()
    settings = parse_settings(with_project_defaults(os.environ), base=folder)
    written = [*_written_tables(tables)]
    if not written:
        raise Refused(
            f"maintain: no asset has {' or '.join(_URI_KEYS)} in its metadata. Either use assets "
            f"that have an address there, or use {{asset key: address}}"
        )
    policies = {
        "compaction": compaction or Compaction(),
        "vacuum": vacuum or Vacuum(),
        "archive": archive,
        "ttl": ttl,
    }
    maintained = _maintained_by_key(
        written, policies, layer=layer, orphans=orphans, base=str(folder)
    )
    lake_tables = _TABLES.setdefault(settings.root, {})
    lake_tables.update(checked({**lake_tables, **maintained}, settings))
    return _definitions(
        [*maintained.values()],
        settings,
        name=name,
        vacuum_cron=vacuum_cron,
        assets_are_known=not isinstance(tables, Mapping),
    )


def _definitions(
    tables: Sequence[Table],
    settings: Settings,
    *,
    name: str,
    vacuum_cron: str,
    assets_are_known: bool,
) -> dg.Definitions:
    lake = open_lake(settings, tables=tables)
    _MAINTAINED.update({table_key(table): (table, lake) for table in tables})

    def load_lake() -> tuple[Lake, Sequence[Table]]:
        lake_tables = [*_TABLES[settings.root].values()]
        lake_tables += other_adopted(lake_tables, settings)
        return open_lake(settings, tables=lake_tables), lake_tables

    assets = [*upkeep_assets(tables, lake, load_lake, vacuum_cron=vacuum_cron, resource=_SPARK)]
    if has_capability("report"):
        assets.append(load_capability("report.asset").report_asset(load_lake, name=name))
    return dg.Definitions(
        assets=dg.with_resources(assets, {_SPARK: _spark(settings)}),
        asset_checks=[health_check(table, lake) for table in tables],
        sensors=[
            observation_sensor(
                tables, lake, name=f"{name}_observation", assets_are_known=assets_are_known
            ),
            compaction_sensor(tables, lake, name=f"{name}_compaction"),
            automation_sensor(assets, name=f"{name}_vacuum"),
        ],
    )


def upkeep_assets(
    tables: Sequence[Table],
    lake: Lake,
    load_lake: LoadLake,
    *,
    vacuum_cron: str = "",
    resource: str = "spark",
) -> Iterator[dg.AssetsDefinition]:
    """The assets of all operations on these tables; see `vacuum_asset` for the arguments."""
    for table in tables:
        yield compaction_asset(table, lake, resource=resource)
        yield vacuum_asset(table, lake, load_lake, cron=vacuum_cron, resource=resource)
    if has_capability("retain"):
        retention = load_capability("retain.asset")
        yield from retention.retention_assets(tables, lake, load_lake, resource=resource)


def maintained_metadata(asset_key: dg.AssetKey | str) -> Metadata:
    """Health, files, rows and next compaction of a table, read from its log.

    For the `MaterializeResult` of the asset that writes the table: Dagster's page of an asset shows
    the metadata of its newest materialization, and not that of the observations after it. Empty if
    the table does not exist yet.

    Raises:
        Refused: no call of `maintain` has the asset.
        LakehouseError: the log cannot be read.
    """
    key = dg.AssetKey.from_user_string(asset_key) if isinstance(asset_key, str) else asset_key
    if key not in _MAINTAINED:
        raise Refused(f"maintained_metadata: no call of maintain has asset {key.to_user_string()}")
    table, lake = _MAINTAINED[key]
    assessed = assessed_table(table, lake)
    return {} if assessed is None else table_metadata(table, assessed)


def _written_tables(
    tables: Mapping[str, str] | Iterable[Any],
) -> Iterator[tuple[dg.AssetKey, str, str]]:
    """Asset, address and pool of the tables of a mapping, or of assets with an address as metadata.

    The pool is empty if the asset has none, or if only its key is known.

    Raises:
        Refused: an item is not an asset.
    """
    if isinstance(tables, Mapping):
        for key, uri in tables.items():
            yield dg.AssetKey.from_user_string(key), uri, ""
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
                yield spec.key, uri, pool


def _maintained_by_key(
    written: Iterable[tuple[dg.AssetKey, str, str]],
    policies: Mapping[str, Any],
    *,
    layer: str,
    orphans: Orphans,
    base: str,
) -> dict[str, Table]:
    """The tables' declarations by key, which is the layer and the asset's key (`_` for `/`).

    Addresses may be relative to the folder `base`. The upkeep uses the pool of the asset, so that
    the asset and its upkeep run one at a time.

    Raises:
        Refused: an address is invalid, or two assets have the same key.
    """
    tables = dict[str, Table]()
    assets = dict[str, str]()
    for asset_key, uri, pool in written:
        asset = asset_key.to_user_string()
        try:
            address = parse_address(uri, base=base)
        except Refused as refused:
            raise Refused(
                f"maintain: asset {asset}: {refused}. If its table is stored elsewhere, leave this "
                "asset out of the call"
            ) from None
        key = key_of(f"/{layer}/{'_'.join(asset_key.path)}", ())
        if key in tables:
            raise Refused(
                f"maintain: assets {assets[key]} and {asset} would both be the table {key}. Pass "
                "one of them to a separate call, with another layer"
            )
        adopted = Adopted(uri=address, orphans=orphans, asset_key=tuple(asset_key.path), pool=pool)
        tables[key] = maintained_table(key, adopted, **policies)
        assets[key] = asset
    return tables


def _uri_in(metadata: Mapping[str, Any]) -> str | None:
    """The address of a Delta table in an asset's metadata, or `None`.

    Addresses of warehouses and web pages are ignored. An address in a storage that Delta supports
    and this program does not is returned, so that the caller refuses it.
    """
    for name in _URI_KEYS:
        value = metadata.get(name)
        if isinstance(value, dg.MetadataValue):
            value = value.value
        if not isinstance(value, str | Path):
            continue
        address = str(value)
        if "://" not in address or address.startswith(_STORAGE_PREFIXES):
            return address
    return None


class MaintainedTables(dg.Component, dg.Model, dg.Resolvable):
    """Compaction, vacuum, checks and sensors for Delta tables that other assets write.

    `tables` maps asset keys to addresses. Relative addresses are resolved against the project's
    root. `engine`, `min_small_files` and `target_file_bytes` are knobs of `Compaction`; for the
    last two, 0 stands for the default. `archive` and `ttl` map the knobs of `Archive` and `Ttl` to
    their values. The other fields are parameters of `lakehouse.maintain`.
    """

    tables: dict[str, str]
    name: str = "maintenance"
    layer: str = "silver"
    orphans: str = "keep"
    min_small_files: int = 0
    target_file_bytes: int = 0
    engine: str = "auto"
    archive: dict[str, str | int] | None = None
    ttl: dict[str, str | int] | None = None
    vacuum_cron: str = NIGHTLY_CRON

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of the tables' upkeep."""
        knobs = self.model_dump(include={"min_small_files", "target_file_bytes", "engine"})
        options = self.model_dump(include={"name", "layer", "orphans", "vacuum_cron"})
        return maintain(
            self.tables,
            compaction=Compaction(**knobs),
            archive=None if self.archive is None else declared_as(Archive, self.archive),
            ttl=None if self.ttl is None else declared_as(Ttl, self.ttl),
            base=context.project_root,
            **options,
        )
