"""Records which process executes a run, closes dead runs, and translates errors for Dagster.

Dagster's code server reports the death of a run's process. If the server was killed as well, the
run would hold pool slots and block the sensors until its time limit (`run_monitoring`).

`python -m lakehouse.assets.runs FOLDER` closes such runs in the Dagster instance of that
folder; use it before Dagster starts there. With `--launched`, it closes all runs that Dagster
launched; use it before the only code location that executes them starts.
"""

import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import dagster as dg
from dagster import DagsterRunStatus, RunsFilter
from dagster._core.storage.runs import SqliteRunStorage  # not public

from lakehouse.base.errors import LakehouseError, Transient
from lakehouse.base.processes import Process, identify, process_space
from lakehouse.spark.errors import translated

# Dagster's UI hides tags with this prefix. Source: dagster 1.13, dagster/_core/storage/tags.py,
# HIDDEN_TAG_PREFIX
_HIDDEN = ".dagster/lakehouse_"
# Dagster's tag of the runs that an automation condition requested. Source: the same file
AUTOMATION_TAG = "dagster/from_automation_condition"
# The states of runs that may have a process. Queued runs have none: the next daemon starts them.
_EXECUTED = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]


def machine_tag(name: str) -> str:
    """The name of a tag that Dagster's UI hides."""
    return _HIDDEN + name


def process_tag(run_id: str) -> dict[str, str]:
    """The tags that record that this process executes the run, as far as the system identifies it.

    Their values include the run's id, because Dagster copies tags to re-executed runs.
    """
    process = identify(os.getpid())
    space = process_space()
    tags = dict[str, str]()
    if process is not None:
        tags[machine_tag("process")] = f"{run_id} {process.pid} {process.born}"
    if space is not None:
        tags[machine_tag("process_space")] = f"{run_id} {space}"
    return tags


def repeated_by_person(tags: Mapping[str, str]) -> bool:
    """Whether this run is a person's re-execution. Dagster's own retries have a retry number."""
    return "dagster/parent_run_id" in tags and "dagster/retry_number" not in tags


def asked_by_person(tags: Mapping[str, str]) -> bool:
    """Whether a person started the run, rather than a sensor or a schedule."""
    is_automated = tags.keys() & {"dagster/sensor_name", "dagster/schedule_name"}
    return repeated_by_person(tags) or not is_automated


def recorded_process(run: dg.DagsterRun) -> Process | None:
    """The process that the run's tags record, alive or not; `None` if they record none."""
    run_id, _, rest = run.tags.get(machine_tag("process"), "").partition(" ")
    pid, _, born = rest.partition(" ")
    return Process(pid=int(pid), born=born) if run_id == run.run_id else None


def close_dead_runs(instance: dg.DagsterInstance, *, dagster_is_down: bool) -> list[str]:
    """Ends the runs whose process is gone, frees their pool slots, and returns their ids.

    A run without a recorded process counts as dead only with `dagster_is_down`, because a running
    Dagster may be starting it. Several machines may share records in a database; in this case, only
    runs whose process ran on this machine are ended.
    """
    is_shared = not isinstance(instance.run_storage, SqliteRunStorage)
    space = process_space()

    def is_dead(run: dg.DagsterRun, process: Process | None) -> bool:
        # The pid of a process is valid with the same boot, pid namespace and user.
        run_space = run.tags.get(machine_tag("process_space"))
        ran_here = space and run_space == f"{run.run_id} {space}"
        if is_shared and not ran_here:
            return False
        return dagster_is_down if process is None else not process.is_alive

    return _close(instance, is_dead)


def close_launched_runs(instance: dg.DagsterInstance) -> list[str]:
    """Ends the runs that Dagster launched, frees their pool slots, and returns their ids.

    Call this function before the only code location that executes these runs starts, when none of
    their processes can be alive. Runs that a command of this program executes itself are kept.
    """
    return _close(instance, lambda run, _: ONCE_TAG not in run.tags)


def _close(
    instance: dg.DagsterInstance, is_dead: Callable[[dg.DagsterRun, Process | None], bool]
) -> list[str]:
    closed: list[str] = []
    for run in instance.get_runs(RunsFilter(statuses=_EXECUTED)):
        process = recorded_process(run)
        if not is_dead(run, process):
            continue
        reason = "no process had begun to execute it"
        if process is not None:
            reason = f"process {process.pid}, which executed the run, is gone"
        if run.status is DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run, f"{reason}; the run was being canceled")
        else:
            instance.report_run_failed(
                run, f"{reason}; the run's commits are kept, and the next run does the rest"
            )
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        closed.append(run.run_id)
    return closed


if __name__ == "__main__":
    with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
        if "--launched" in sys.argv:
            closed_ids = close_launched_runs(instance)
        else:
            closed_ids = close_dead_runs(instance, dagster_is_down=True)
        for closed_id in closed_ids:
            print(f"run {closed_id[:8]} was closed, because no process executes it", flush=True)


# A step that failed with `Transient` is retried up to three times, after another 5, 15 and 35 s,
# because a Spark Connect server that died is back after 5 to 15 s. Each delay is extended at random
# by up to a half, so that runs that failed together do not retry together.
MAX_RETRIES = 3
_FIRST_DELAY_SECONDS = 5
# The tag of a run that is not retried. Commands set it, because their exit code shows the caller
# that a retry may help.
ONCE_TAG = machine_tag("once")


@contextmanager
def errors_for_dagster(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.AssetCheckExecutionContext,
) -> Iterator[None]:
    """Turns our errors into Dagster's. Any other error is a bug: it is raised and not retried.

    If a Spark error has no message of its own, its innermost cause is reported.
    """
    try:
        with translated(operation="a Spark statement of this run"):
            yield
    except LakehouseError as error:
        if isinstance(error, Transient):
            context.log.warning(f"{type(error).__name__}: {error}")
            attempt = context.op_execution_context.retry_number
            if attempt < MAX_RETRIES and ONCE_TAG not in context.run.tags:
                seconds = (2 ** (attempt + 1) - 1) * _FIRST_DELAY_SECONDS * random.uniform(1, 1.5)
                raise dg.RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=seconds) from error
        raise dg.Failure(
            description=str(error),
            metadata={"lakehouse/error": type(error).__name__},
            allow_retries=False,
        ) from error
