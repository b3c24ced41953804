"""Dagster's entry point: reads the settings once and defines assets, checks, sensors."""

# ruff: noqa: E402

import atexit
import gc

# Each run is a process that imports these modules. With Python's default thresholds, garbage
# collection takes a quarter of the import time. At the end of the process, it takes up to a second
# more, unless all objects are exempt.
gc.set_threshold(50_000, 20, 20)
atexit.register(gc.freeze)

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from lakehouse.adopt.asset import observation_sensor, observed_asset
from lakehouse.adopt.maintain import upkeep_assets
from lakehouse.assets.dagster_records import records_asset
from lakehouse.assets.keys import automation_sensor
from lakehouse.assets.resources import lake_of, lake_resources
from lakehouse.base.installation import has_capability, load_capability, project_settings
from lakehouse.base.settings import Settings
from lakehouse.compact.sensor import compaction_sensor
from lakehouse.declare.table import Table
from lakehouse.lake.declared_tables import declared_tables
from lakehouse.land.asset import landing_assets, landing_sensor
from lakehouse.materialize.asset import table_asset
from lakehouse.vacuum.asset import inventory_asset, inventory_sensor
from lakehouse.watch.check import health_check
from lakehouse.watch.costs.asset import chargeback_asset


def define(settings: Settings) -> dg.Definitions:
    """All definitions of the lake in the settings.

    Raises:
        Refused: a declaration cannot be imported or is invalid (`declared_tables`).
    """
    tables = [*declared_tables(settings).values()]
    resources = lake_resources(settings)
    lake = lake_of(settings, resources, tables)
    assets: list[Any] = [*landing_assets(tables, lake), *_assets_of_tables(tables, lake)]
    sensors: list[dg.SensorDefinition] = [*replay_sensors(settings)]
    adopted = [table for table in tables if table.adopted]
    if adopted:
        sensors.append(observation_sensor(adopted, lake))
    if any(table.source is not None for table in tables):
        sensors.append(landing_sensor(tables, lake))
    if tables:
        assets += [
            records_asset(settings),
            inventory_asset(tables, lake),
            chargeback_asset(tables, lake),
        ]
        if has_capability("report"):
            assets.append(load_capability("report.asset").report_asset(lambda: (lake, tables)))
        sensors += [
            automation_sensor(assets),
            compaction_sensor(tables, lake),
            inventory_sensor(lake),
        ]
    return dg.Definitions(
        assets=assets,
        asset_checks=[health_check(table, lake) for table in tables],
        sensors=sensors,
        resources=resources,
        executor=dg.in_process_executor,
    )


def _assets_of_tables(tables: Sequence[Table], lake: Any) -> Iterable[Any]:
    """The assets of each table, and of each operation on it."""
    for table in tables:
        if table.adopted:
            yield observed_asset(table, lake)
        else:
            yield table_asset(table, lake, tables)
    yield from upkeep_assets(tables, lake, lambda: (lake, tables))


def replay_sensors(settings: Settings) -> Iterable[dg.SensorDefinition]:
    """The replay's sensor; empty if the replay is off or its folder was deleted."""
    if settings.replay == "off" or not has_capability("replay"):
        return ()
    return (load_capability("replay.definitions").replay_sensor(settings),)


defs = define(project_settings())
