"""Materializes assets in this process through Dagster, which records the runs in its instance.

1. Close runs whose process has ended, because they would still hold slots in their tables' pools.
2. Execute the run in this process, and print its events as they happen.
3. Return the metadata and failures from Dagster's events.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import dagster as dg
from dagster import DagsterEventType, EventLogEntry

# These two are not public, but no public name distinguishes an interrupt from a failure.
from dagster._core.events import RunFailureReason
from dagster._core.execution.plan.objects import ErrorSource

from lakehouse.assets.events import open_instance
from lakehouse.assets.runs import ONCE_TAG, process_tag
from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.base.processes import late_interrupts
from lakehouse.base.settings import Settings
from lakehouse.base.text import printable
from lakehouse.cli.output import tell, working

_ERROR_KINDS: dict[str, type[LakehouseError]] = {
    kind.__name__: kind for kind in (Refused, Transient, Broken)
}
# Run config that keeps Dagster's own log lines out of the terminal. Dagster's page shows them.
_QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(slots=True, kw_only=True)
class AssetRun:
    """The result of a run for one asset.

    `state` is `skipped` if the run neither materialized the asset nor failed in its step.
    """

    key: str
    state: Literal["done", "failed", "skipped"] = "skipped"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    error: LakehouseError | None = None
    run_id: str = ""


def materialize(settings: Settings, keys: Sequence[str]) -> list[AssetRun]:
    """Closes runs whose process has ended, and runs these assets of a lake. See `run_assets`."""
    with late_interrupts():
        from lakehouse.definitions import define  # reads the environment when it is imported

    with _no_warnings():
        defs = define(settings)
    with open_instance(settings, tell) as instance:
        return run_assets(instance, defs, keys)


def run_assets(
    instance: dg.DagsterInstance, defs: dg.Definitions, keys: Sequence[str]
) -> list[AssetRun]:
    """Runs these assets in Dagster's order.

    Returns one result per key. A failure is in the result of its asset.

    Raises:
        KeyboardInterrupt: the run was interrupted; Dagster records it as canceled.
    """
    run_id = str(uuid4())
    watch = _Watch(instance, run_id, keys)
    with watch.spinner, _no_warnings():
        job = defs.resolve_implicit_global_asset_job_def()
        instance.add_event_listener(run_id, watch.see)
        job.execute_in_process(
            instance=instance,
            asset_selection=[dg.AssetKey(key.split("/")) for key in keys],
            run_id=run_id,
            run_config=_QUIET,
            # Dagster does not retry a run with `ONCE_TAG`: the person sees the error.
            tags={ONCE_TAG: "true", **process_tag(run_id)},
            raise_on_error=False,
        )
    if watch.interrupted:
        raise KeyboardInterrupt
    return list(watch.results.values())


class _Watch:
    """Prints the events of a run as they happen, and keeps its results."""

    def __init__(self, instance: dg.DagsterInstance, run_id: str, keys: Sequence[str]) -> None:
        self._instance = instance
        self._run_id = run_id
        self.interrupted = False
        self.results = {key: AssetRun(key=key, run_id=run_id) for key in keys}
        # Dagster names the step of an asset by its key.
        self._run_of_step = {
            dg.AssetKey(key.split("/")).to_python_identifier(): run
            for key, run in self.results.items()
        }
        self.spinner = working("opening a Spark session")

    def see(self, entry: EventLogEntry) -> None:
        """Handles one event, which Dagster has just stored."""
        event = entry.dagster_event
        if event is None:  # a line that the asset's code logged
            self.spinner.update(printable(entry.user_message))
            return
        run = self._run_of_step.get(event.step_key or "")
        match event.event_type:
            case DagsterEventType.ASSET_MATERIALIZATION:
                materialization = event.step_materialization_data.materialization
                key = "/".join(materialization.asset_key.path)
                metadata = {name: entry.value for name, entry in materialization.metadata.items()}
                if key in self.results:  # a write may also materialize its compaction asset
                    self.results[key].state = "done"
                    self.results[key].metadata = metadata
                tell(f"{key}: {_outcome_sentence(metadata)}")
            case DagsterEventType.STEP_START if run:
                self.spinner.update(run.key)
            case DagsterEventType.STEP_FAILURE if (
                event.step_failure_data.error_source is ErrorSource.INTERRUPT
            ):
                self.interrupted = True
                # Without this, Dagster records an interrupted run as failed.
                if dagster_run := self._instance.get_run_by_id(self._run_id):
                    self._instance.report_run_canceling(dagster_run, "interrupted at the terminal")
            case DagsterEventType.STEP_FAILURE if run:
                run.state = "failed"
                run.error = _failure(event.step_failure_data)
            case DagsterEventType.RUN_FAILURE:
                # An interrupt between two steps ends the run with this reason.
                self.interrupted |= (
                    event.job_failure_data.failure_reason is RunFailureReason.UNEXPECTED_TERMINATION
                )
            # Dagster's message while a step waits for a slot in its pool.
            case DagsterEventType.ENGINE_EVENT if run and (event.message or "").startswith(
                "Step blocked by"
            ):
                tell(f"{run.key}: waits for another run of this table")


def _outcome_sentence(metadata: Mapping[str, Any]) -> str:
    if "lakehouse/rows_written" not in metadata:
        return str(metadata.get("lakehouse/outcome", "done"))
    rows = metadata["lakehouse/rows_written"]
    seconds = metadata["lakehouse/seconds"]
    return f"{rows:,} rows in {seconds:.1f} s; {metadata['lakehouse/outcome']}"


def _failure(data: Any) -> LakehouseError:
    """The error of a failed step.

    The failure's metadata name the error's kind (`Refused`, `Transient` or `Broken`), or else the
    class of the root cause does. A root cause of another class is a defect, and becomes `Broken`.
    """
    if failure := data.user_failure_data:
        kind = failure.metadata.get("lakehouse/error")
        if kind is not None and kind.value in _ERROR_KINDS:
            return _ERROR_KINDS[kind.value](failure.description)
    error = data.error
    while error.cause is not None:
        error = error.cause
    # The message's first line begins with the class, like `lakehouse.base.errors.Refused: …`.
    name = (error.cls_name or "unknown").rpartition(".")[2]
    message = error.message.strip().partition("\n")[0].rpartition(f"{error.cls_name}: ")[2]
    if name in _ERROR_KINDS:
        return _ERROR_KINDS[name](message)
    return Broken(f"a defect: {name}: {message}")


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Suppresses Dagster's warnings about beta features."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", (dg.BetaWarning, dg.PreviewWarning))
        yield
