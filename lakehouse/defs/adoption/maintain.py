"""Upkeep for the Delta tables of any Dagster project: compaction, vacuum, checks and sensors.

The project's own code still writes its assets, and is not changed. State is kept in `.lakehouse/`
in the folder where Dagster runs, or where the LAKEHOUSE_ settings say.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg

from lakehouse.core.adoption.maintained import Upkeep, maintained_table, with_project_defaults
from lakehouse.core.declaration.adopted import (
    Adopted,
    Orphans,
    Writers,
    key_of,
    parse_address,
)
from lakehouse.core.declaration.archive import Archive, Ttl
from lakehouse.core.declaration.compaction_policy import Compaction
from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.vacuum_policy import Vacuum
from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings, parse_settings
from lakehouse.core.text import count_of
from lakehouse.defs.adoption.observed import observation_sensor
from lakehouse.defs.alerts import alert_sensors
from lakehouse.defs.archive import archive_asset
from lakehouse.defs.compaction import compaction_asset
from lakehouse.defs.compaction_sensor import compaction_schedules, compaction_sensor
from lakehouse.defs.health import health_check
from lakehouse.defs.keys import (
    archive_key,
    compaction_key,
    report_key,
    table_key,
    ttl_key,
    vacuum_key,
)
from lakehouse.defs.report import report_asset
from lakehouse.defs.resources import lake_of, lake_resources, spark_resource
from lakehouse.defs.table_assets import automation_sensor
from lakehouse.defs.ttl import ttl_asset
from lakehouse.defs.upkeep_times import NIGHTLY_CRON
from lakehouse.defs.vacuum import vacuum_asset
from lakehouse.engine.declared_tables import checked, other_adopted
from lakehouse.engine.lake import Lake

# Not `spark`, because a project may have a resource of its own with that name.
_SPARK = "lakehouse_spark"
_spark = cache(
    spark_resource
)  # shared by all calls: the assets of one job may not have two resources with the same name
# The tables of all calls, by the root of their lake. A vacuum keeps the files that any of them
# borrows.
_TABLES: dict[str, dict[str, Table]] = {}
# For the metrics: what gives the lake and all tables of each root.
_LAKES: dict[str, Callable[[], tuple[Lake, Sequence[Table]]]] = {}
_URI_KEYS = ("dagster/uri", "uri")
# The storages of Delta tables. Source: Delta Lake 4.4.0, docs, "Storage configuration"
_STORAGES = ("s3", "file:", "gs:", "abfs", "wasb", "adl:", "hdfs:", "dbfs:", "oci:", "cos")
# Assigns one pool to every asset that is defined after this line with `@asset` or `@asset(…)`.
POOL_LINE = 'asset = functools.partial(dg.asset, pool="delta_tables")'


def maintain(
    tables: Mapping[str, str] | Iterable[Any],
    *,
    name: str = "maintenance",
    layer: str = "silver",
    writers: Writers = "unknown",
    orphans: Orphans = "keep",
    compaction: Compaction | None = None,
    vacuum: Vacuum | None = None,
    archive: Archive | None = None,
    ttl: Ttl | None = None,
    vacuum_cron: str = NIGHTLY_CRON,
    base: str | Path | None = None,
) -> dg.Definitions:
    """The definitions for the upkeep of a project's Delta tables, to be merged into its own.

    `tables` are either assets, of which those with `dagster/uri` or `uri` in their metadata are
    used, or asset keys (`sales/orders`) with the addresses of their tables. The layer's defaults
    apply to all fields that `compaction` does not set. docs/adopt.md explains `writers` and
    `orphans`. `archive` and `ttl` apply to each of the tables. Sensor names begin with `name`, so a
    project can call this several times. Relative addresses are resolved against `base`.

    Raises:
        Refused: no asset has an address, an address is invalid, two assets are the same table, a
            setting is not accepted, or archived rows would leave S3 for a disk.
    """
    start = str(Path(base or Path.cwd()).resolve())
    settings = parse_settings(with_project_defaults(os.environ), base=Path(start))
    written = [*_written(tables)]
    by_spark = compaction is not None and compaction.engine == "spark"
    if writers == "none" and by_spark:
        _refuse_without_pool({key: uri for key, uri, pool in written if pool is None})
    found = dict[str, Table]()
    upkeep = Upkeep(
        compaction=compaction or Compaction(),
        vacuum=vacuum or Vacuum(),
        archive=archive,
        ttl=ttl,
    )
    for asset_key, uri, pool in written:
        shown = asset_key.to_user_string()
        adopted = Adopted(
            uri=_address_of(asset_key, uri, base=start),
            # Without a pool, only conditional commits keep the asset's runs and Spark apart.
            writers="unknown" if writers == "none" and pool is None else writers,
            orphans=orphans,
            asset_key=tuple(asset_key.path),
            pool=pool or "",
        )
        key = key_of(f"/{layer}/{'_'.join(asset_key.path)}", ())
        if (other := found.get(key)) and isinstance(other.write, Adopted):
            both = f"{'/'.join(other.write.asset_key)} and {shown} would both be {key}"
            raise Refused(
                f"maintain: {both}. Pass one of them to a separate call, with another layer"
            )
        if archive is not None and adopted.uri.startswith("s3") and not settings.on_s3:
            raise Refused(
                f"maintain: the archive of {shown} would be on this machine's disk, in"
                f" {settings.root}. Use LAKEHOUSE_ROOT=s3://… for the upkeep's own files"
            )
        found[key] = maintained_table(key, adopted, upkeep)
    if not found:
        raise Refused(
            f"maintain: no asset has {' or '.join(_URI_KEYS)} in its metadata. Use such "
            f"assets, or {{asset key: address}}"
        )
    known = _TABLES.setdefault(settings.root, {})
    known.update(checked({**known, **found}, settings))
    are_known = not isinstance(tables, Mapping)
    return _definitions(
        [*found.values()], settings, name=name, vacuum_cron=vacuum_cron, assets_are_known=are_known
    )


def maintained_metrics() -> str:
    """The metrics of the tables that `maintain` knows in this process, as Prometheus' text.

    Serve it from a server of your own, or write it to a file for node_exporter (docs/metrics.md).
    """
    from lakehouse.engine.metrics.exposition import metrics_text
    from lakehouse.engine.metrics.read import read_samples

    home = os.environ.get("DAGSTER_HOME")
    lakes = [everything() for everything in _LAKES.values()]
    return metrics_text(
        sample
        for lake, tables in lakes
        for sample in read_samples(lake, tables, dagster_home=Path(home) if home else None)
    ).decode()


def _address_of(asset_key: dg.AssetKey, uri: str, *, base: str) -> str:
    """The address of an asset's table; relative addresses are resolved against `base`."""
    try:
        return parse_address(uri, base=base)
    except Refused as refused:
        raise Refused(
            f"maintain: asset {asset_key.to_user_string()}: {refused}. Leave it out of the call if "
            "its table lies elsewhere"
        ) from None


def _refuse_without_pool(addresses: Mapping[dg.AssetKey, str]) -> None:
    """Refuses assets whose runs might commit during a compaction.

    The message contains the lines that fix all of them.
    """
    if not addresses:
        return
    by_name = {key.to_user_string(): uri for key, uri in addresses.items()}
    raise Refused(
        f'maintain: writers is "none", but {count_of(len(by_name), "asset")} without a pool may '
        f"commit while a compaction runs: {', '.join(by_name)}. Either give each asset its own "
        f"pool, like pool={next(iter(by_name))!r}; or define all of them with @asset after one "
        "line, which makes them take turns: "
        f"`{POOL_LINE}`; or, if you make sure that none of them runs during a compaction, pass "
        f'their addresses: maintain({by_name}, writers="none")'
    )


def _definitions(
    tables: Sequence[Table],
    settings: Settings,
    *,
    name: str,
    vacuum_cron: str,
    assets_are_known: bool,
) -> dg.Definitions:
    resources = lake_resources(settings)
    lake = lake_of(settings, resources, tables)

    def everything() -> tuple[Lake, Sequence[Table]]:
        known = [*_TABLES[settings.root].values()]
        known += other_adopted(known, settings)
        return lake_of(settings, resources, known), known

    _LAKES[settings.root] = everything
    vacuums = [vacuum_key(table) for table in tables]
    archived = [table for table in tables if table.archive is not None]
    expiring = [table for table in tables if table.ttl is not None]
    daily = [*vacuums, *map(archive_key, archived), *map(ttl_key, expiring)]
    made = [
        *(compaction_asset(table, lake, resource=_SPARK) for table in tables),
        *(
            vacuum_asset(table, lake, everything, cron=vacuum_cron, resource=_SPARK)
            for table in tables
        ),
        *(archive_asset(table, lake, tables, resource=_SPARK) for table in archived),
        *(ttl_asset(table, lake, resource=_SPARK) for table in expiring),
        report_asset(everything, name=name),
    ]
    return dg.Definitions(
        assets=dg.with_resources(made, {_SPARK: _spark(settings)}),
        asset_checks=[health_check(table, lake) for table in tables],
        sensors=[
            observation_sensor(
                tables, lake, name=f"{name}_observation", assets_are_known=assets_are_known
            ),
            compaction_sensor(tables, lake, name=f"{name}_compaction", report=report_key(name)),
            automation_sensor([*daily, report_key(name)], name=f"{name}_vacuum"),
            *alert_sensors(
                tables,
                lake,
                name=f"{name}_alerts",
                daily=vacuums if vacuum_cron == NIGHTLY_CRON else (),
                checked=[*map(table_key, tables), *map(compaction_key, tables), *vacuums],
            ),
        ],
        schedules=compaction_schedules(tables, lake),
    )


def _written(
    tables: Mapping[str, str] | Iterable[Any],
) -> Iterable[tuple[dg.AssetKey, str, str | None]]:
    """The asset key, address and pool of each table.

    The pool is empty if other code writes the table, and `None` if its asset has no pool.
    """
    if isinstance(tables, Mapping):
        yield from ((dg.AssetKey.from_user_string(key), uri, "") for key, uri in tables.items())
        return
    for asset in tables:
        specs, pool = [asset], ""
        if isinstance(asset, dg.AssetsDefinition):
            specs, pool = (
                asset.specs,
                getattr(asset.node_def, "pool", None) if asset.is_executable else "",
            )
        elif not isinstance(asset, dg.AssetSpec | dg.SourceAsset):
            raise Refused(
                f"maintain: {asset!r} is not an asset. Use assets, or a mapping of asset keys to "
                "addresses"
            )
        yield from (
            (spec.key, uri, pool) for spec in specs if (uri := _uri_in(spec.metadata)) is not None
        )


def _uri_in(metadata: Mapping[str, Any]) -> str | None:
    """The address of a table in an asset's metadata. Warehouse and web addresses are ignored.

    An address in an unsupported storage is returned, so that it is refused instead of silently
    ignored.
    """
    for name in _URI_KEYS:
        value = metadata.get(name)
        text = value.value if isinstance(value, dg.MetadataValue) else value
        if isinstance(text, str | Path) and (
            "://" not in str(text) or str(text).startswith(_STORAGES)
        ):
            return str(text)
    return None
