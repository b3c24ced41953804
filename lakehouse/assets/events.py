"""What an operation reports to Dagster: events of a run of its asset, or events without a run.

A command of the terminal runs the operation itself, and reports it afterwards. Both report the same
events, so Dagster's pages, conditions and sensors see no difference.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import dagster as dg

from lakehouse.assets.home import dagster_home
from lakehouse.assets.metadata import DATA_VERSION
from lakehouse.assets.runs import close_dead_runs
from lakehouse.base.frozen import frozen
from lakehouse.base.processes import hold_lock
from lakehouse.base.settings import Settings

RunlessEvent = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation
Event = RunlessEvent | dg.MaterializeResult[Any] | dg.AssetCheckResult


@frozen
class Reporter:
    """A run of Dagster that reports an operation, or a command (`run_id` is empty).

    `tell` shows a message in the run's log or in the terminal.
    """

    instance: dg.DagsterInstance
    tell: Callable[[str], None]
    run_id: str = ""


def reporter_of(context: dg.AssetExecutionContext) -> Reporter:
    """The reporter of a run."""
    return Reporter(instance=context.instance, tell=context.log.warning, run_id=context.run.run_id)


@contextmanager
def open_instance(settings: Settings, tell: Callable[[str], None]) -> Iterator[dg.DagsterInstance]:
    """Opens Dagster's instance of a lake, and closes runs whose process has ended."""
    home = dagster_home(settings)
    # If two processes create Dagster's databases at the same time, one of them fails.
    with hold_lock(settings.home / "terminal.lock"):
        instance = dg.DagsterInstance.from_config(str(home))
    with instance:
        for run_id in close_dead_runs(instance, dagster_is_down=False):
            tell(f"closed run {run_id[:8]}, whose process has ended")
        yield instance


def without_run(event: Event) -> RunlessEvent:
    """An event as `report_runless_asset_event` takes it.

    A materialization gets a new data version, as Dagster gives one to that of a run.
    """
    match event:
        case dg.MaterializeResult():
            assert event.asset_key is not None
            return dg.AssetMaterialization(
                event.asset_key, metadata=event.metadata, tags={DATA_VERSION: uuid4().hex}
            )
        case dg.AssetCheckResult():
            assert event.asset_key is not None and event.check_name is not None
            return dg.AssetCheckEvaluation(
                asset_key=event.asset_key,
                check_name=event.check_name,
                passed=event.passed,
                metadata=event.metadata,
                severity=event.severity,
                description=event.description,
                blocking=False,
            )
        case _:
            return event
