"""Translates our errors for Dagster, which retries `Transient` but not `Refused` or `Broken`."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from lakehouse.assets.runs import machine_tag
from lakehouse.base.errors import LakehouseError, Transient
from lakehouse.spark.errors import causes_named

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
        with causes_named("a Spark statement of this run"):
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
