"""Dagster's front door: reads the environment once and lists everything that exists.

What a table needs (its asset, its checks, its compaction, its place in the sensors) is made from its declaration.
"""

import importlib
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import dagster as dg

from lakehouse.core.adoption.adopted import Adopted
from lakehouse.core.settings import Settings, parse_settings
from lakehouse.defs.adoption.observed import observation_sensor, observed_asset
from lakehouse.defs.compaction import compaction_asset, compaction_sensor
from lakehouse.defs.health import health_check
from lakehouse.defs.inventory import inventory_asset, inventory_sensor
from lakehouse.defs.keys import inventory_key, table_key, vacuum_key
from lakehouse.defs.landing import landing_assets, landing_sensor
from lakehouse.defs.resources import lake_of, lake_resources, tables_of
from lakehouse.defs.table_assets import table_asset
from lakehouse.defs.upkeep.ranking_asset import maintenance_plan
from lakehouse.defs.upkeep.schedules import automation_sensor, compaction_schedules
from lakehouse.defs.vacuum import vacuum_asset

PROJECT = Path(__file__).resolve().parents[1]


def define(settings: Settings) -> dg.Definitions:
    """Everything that Dagster is to know of the lake that the settings name.

    Raises:
        Refused: as for `tables_of`.
    """
    tables = tables_of(settings)
    resources = lake_resources(settings)
    lake = lake_of(settings, resources, tables)
    adopted = [table for table in tables if isinstance(table.write, Adopted)]
    own = [table for table in tables if not isinstance(table.write, Adopted)]
    return dg.Definitions(
        assets=[
            *landing_assets(tables, lake),
            *(table_asset(table, lake) for table in own),
            *(observed_asset(table, lake) for table in adopted),
            *(compaction_asset(table, lake) for table in tables),
            *(vacuum_asset(table, lake, lambda: (lake, tables)) for table in tables),
            *([maintenance_plan(), inventory_asset(tables, lake)] if tables else []),
        ],
        asset_checks=[health_check(table, lake) for table in tables],
        sensors=[
            *([observation_sensor(adopted, lake)] if adopted else []),
            *([landing_sensor(tables, lake)] if any(table.source is not None for table in tables) else []),
            *(
                [
                    automation_sensor([inventory_key(lake), *map(table_key, own), *map(vacuum_key, tables)]),
                    compaction_sensor(tables, lake),
                    inventory_sensor(lake),
                ]
                if tables
                else []
            ),
            *replay_sensors(settings),
        ],
        schedules=compaction_schedules(tables, lake),
        resources=resources,
        executor=dg.in_process_executor,
    )


def replay_sensors(settings: Settings) -> Iterable[dg.SensorDefinition]:
    """The replay's sensor, unless it is turned off or its folder was deleted."""
    if not settings.replay or find_spec("lakehouse.replay") is None or find_spec("lakehouse.replay.definitions") is None:
        return ()
    return (importlib.import_module("lakehouse.replay.definitions").replay_sensor(settings),)


defs = define(parse_settings(os.environ, base=PROJECT))
