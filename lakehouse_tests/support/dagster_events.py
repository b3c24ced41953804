"""Events of Dagster for the tests of what it shows: runs and assets as its records tell of them, and ticks of sensors."""

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import dagster as dg
from dagster import DagsterEvent, DagsterEventType, SensorResult
from dagster._core.events import AssetMaterializationPlannedData, StepMaterializationData

from lakehouse import Table
from lakehouse.assets.keys import table_key

_JOB = "__ASSET_JOB"


def materialized(
    instance: dg.DagsterInstance, of: Table, *, data_version: str | None = None, **numbers: float
) -> None:
    """An event of the instance: the table was materialized, with these numbers and as its state."""
    metadata = _metadata(numbers)
    tags = {"dagster/data_version": data_version} if data_version is not None else None
    instance.report_runless_asset_event(
        dg.AssetMaterialization(table_key(of), metadata=metadata, tags=tags)
    )


def observed(instance: dg.DagsterInstance, of: Table, **numbers: float) -> None:
    """An event of the instance: the table was observed."""
    instance.report_runless_asset_event(
        dg.AssetObservation(table_key(of), metadata=_metadata(numbers))
    )


def _metadata(numbers: Mapping[str, float]) -> dict[str, Any]:
    """The numbers under `lakehouse/` keys, and as the state that the compaction sensor reads."""
    nested = ("rewrites",)
    state: dict[str, Any] = {}
    for name, value in numbers.items():
        kind = next((each for each in nested if name.startswith(f"{each}_")), None)
        if kind is not None:
            state.setdefault(kind, {})[name.removeprefix(f"{kind}_")] = value
        else:
            state[name] = value
    metadata: dict[str, Any] = {f"lakehouse/{name}": value for name, value in numbers.items()}
    return metadata | {"lakehouse/state": dg.MetadataValue.json(state)}


def begun(
    instance: dg.DagsterInstance, *keys: dg.AssetKey, tags: Mapping[str, str] | None = None
) -> dg.DagsterRun:
    """A run of these assets that is under way in the instance's records."""
    new = dg.DagsterRun(
        job_name=_JOB,
        run_id=str(uuid4()),
        status=dg.DagsterRunStatus.STARTED,
        tags=dict(tags or {}),
        asset_selection=frozenset(keys),
    )
    run = instance.add_run(new)
    for key in keys:
        planned = AssetMaterializationPlannedData(asset_key=key)
        event = DagsterEvent(
            DagsterEventType.ASSET_MATERIALIZATION_PLANNED.value, _JOB, event_specific_data=planned
        )
        instance.report_dagster_event(event, run_id=run.run_id)
    return run


def materialized_by(
    instance: dg.DagsterInstance, run: dg.DagsterRun, of: Table, *, data_version: str
) -> None:
    """An event of a run: it materialized the table."""
    made = dg.AssetMaterialization(table_key(of), tags={"dagster/data_version": data_version})
    kind, data = DagsterEventType.ASSET_MATERIALIZATION.value, StepMaterializationData(made)
    event = DagsterEvent(kind, _JOB, event_specific_data=data)
    instance.report_dagster_event(event, run_id=run.run_id)


def ended(
    instance: dg.DagsterInstance,
    run: dg.DagsterRun,
    how: DagsterEventType,
    *,
    seconds_ago: float = 0,
) -> dg.DagsterRun:
    """The same run at its end."""
    event = DagsterEvent(event_type_value=how.value, job_name=_JOB)
    instance.report_dagster_event(event, run_id=run.run_id, timestamp=time.time() - seconds_ago)
    return run


def requested(instance: dg.DagsterInstance, request: dg.RunRequest) -> dg.DagsterRun:
    """The run that Dagster makes of a sensor's request, under way."""
    tags = {**request.tags, "dagster/run_key": request.run_key or ""}
    return begun(instance, *(request.asset_selection or ()), tags=tags)


def tick_of(
    sensor: dg.SensorDefinition, instance: dg.DagsterInstance, *, cursor: str | None = None
) -> SensorResult:
    """One tick of a sensor."""
    with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
        result = sensor(context)
    assert isinstance(result, SensorResult)
    return result


def asked(result: SensorResult) -> list[str]:
    """The assets that a tick asks for."""
    requests = result.run_requests or []
    return [key.to_user_string() for each in requests for key in each.asset_selection or []]


def skip_text(result: SensorResult) -> str:
    """The reason that a tick gives for asking for no run."""
    return result.skip_reason.skip_message


def sensor_tick(
    instance: dg.DagsterInstance,
    repository: dg.RepositoryDefinition,
    name: str,
    cursor: str | None = None,
) -> Any:
    """A tick of one sensor, with its events recorded as the daemon records them."""
    with dg.build_sensor_context(
        instance=instance, repository_def=repository, cursor=cursor
    ) as context:
        done = repository.get_sensor_def(name).evaluate_tick(context)
    for event in done.asset_events:
        instance.report_runless_asset_event(event)
    return done
