"""Our three errors in Dagster's words: `Transient` is tried again by Dagster, `Refused` and `Broken` are not."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from lakehouse.core.errors import LakehouseError, Transient
from lakehouse.defs.run_ownership import machine_tag
from lakehouse.engine.spark.errors import causes_named

# A Connect server that died is back after 5 to 15 s: three more tries, 5, 15 and 35 s apart and up to half as long again, outlive that.
# Many runs fail at one time, and had they the same waits, they would all come back at one time.
MAX_RETRIES = 3
_FIRST_DELAY_SECONDS = 5
# The tag of a run whose starter decides about another try: a terminal, which tells it by its exit code.
ONCE_TAG = machine_tag("once")


@contextmanager
def dagster_words(
    context: dg.OpExecutionContext | dg.AssetExecutionContext | dg.AssetCheckExecutionContext,
) -> Iterator[None]:
    """Turns the errors that leave its body into Dagster's; any other error is a bug and goes through, untried.

    An error of Spark that says nothing by itself is told by its innermost cause.
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
