"""Dagster's front door: reads the environment once and lists everything that exists.

What a table needs (its asset, its checks, its compaction, its place in the sensors) is made from its declaration.
"""

import importlib
import os
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import dagster as dg

from lakehouse.core.errors import Refused
from lakehouse.core.settings import Settings, parse_settings
from lakehouse.core.table import Table, find_tables
from lakehouse.defs.compaction import compaction_asset, compaction_sensor
from lakehouse.defs.health import health_check
from lakehouse.defs.keys import table_key
from lakehouse.defs.landing import landing_assets, landing_sensor
from lakehouse.defs.medallion import table_asset
from lakehouse.defs.resources import lake_of, spark_resource

PROJECT = Path(__file__).resolve().parents[1]


def define(settings: Settings) -> dg.Definitions:
    """Everything that Dagster is to know of the lake that the settings name.

    Raises:
        Refused: a module of the tables package cannot be imported, or declares what cannot be.
    """
    tables = tuple(find_tables(table_modules(settings.tables)).values())
    lake = lake_of(settings)
    return dg.Definitions(
        assets=[
            *landing_assets(tables, lake),
            *(table_asset(table, lake) for table in tables),
            *(compaction_asset(table, lake) for table in tables),
        ],
        asset_checks=[health_check(table, lake) for table in tables],
        sensors=[
            *([landing_sensor(tables, lake)] if any(table.source is not None for table in tables) else []),
            *([automation_sensor(tables), compaction_sensor(tables)] if tables else []),
            *replay_sensors(settings),
        ],
        resources={"spark": spark_resource(settings)},
        executor=dg.in_process_executor,
    )


def automation_sensor(tables: Sequence[Table]) -> dg.AutomationConditionSensorDefinition:
    """Has the derived tables follow their inputs; without it, Dagster's own stands still until a person turns it on."""
    return dg.AutomationConditionSensorDefinition(
        name="automation_sensor",
        target=dg.AssetSelection.assets(*(table_key(table) for table in tables)),
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=10,
    )


def table_modules(package: str) -> Iterator[ModuleType]:
    """The tables package and every module below it.

    Raises:
        Refused: one of them cannot be imported; its name and the reason are told.
    """
    root = _import(package)
    yield root
    for found in pkgutil.walk_packages(getattr(root, "__path__", []), prefix=f"{package}."):
        yield _import(found.name)


def replay_sensors(settings: Settings) -> Iterable[dg.SensorDefinition]:
    """The replay's sensor, unless it is turned off or its folder was deleted."""
    if not settings.replay or find_spec("lakehouse.replay") is None or find_spec("lakehouse.replay.definitions") is None:
        return ()
    return (importlib.import_module("lakehouse.replay.definitions").replay_sensor(settings),)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:
        raise Refused(
            f"tables module {name} cannot be imported: {type(error).__name__}: {error} (LAKEHOUSE_TABLES names its package)"
        ) from error


defs = define(parse_settings(os.environ, base=PROJECT))
