"""Our three errors in Dagster's words."""

import logging
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from lakehouse.assets.runs import MAX_RETRIES, errors_for_dagster
from lakehouse.base.errors import Broken, LakehouseError, Refused, Transient


def told(error: Exception, *, attempt: int) -> dg.RetryRequested | dg.Failure:
    """What Dagster is told of an error in the try of that number, counted from 0."""
    step, run = SimpleNamespace(retry_number=attempt), SimpleNamespace(tags={})
    context: Any = SimpleNamespace(log=logging.getLogger(), run=run, op_execution_context=step)
    with pytest.raises((dg.RetryRequested, dg.Failure)) as found, errors_for_dagster(context):
        raise error
    return found.value


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 5), (1, 15), (2, 35)])
def test_a_transient_error_is_tried_again_after_growing_pauses(attempt: int, seconds: int) -> None:
    tries = [told(Transient("the server is away"), attempt=attempt) for _ in range(20)]
    assert {each.max_retries for each in tries} == {MAX_RETRIES}
    pauses = [each.seconds_to_wait for each in tries]
    assert seconds <= min(pauses) < max(pauses) <= seconds * 1.5


@pytest.mark.parametrize(
    ("error", "attempt"),
    [
        (Transient("the server is away"), MAX_RETRIES),
        (Refused("ask otherwise"), 0),
        (Broken("look at it"), 0),
    ],
)
def test_what_no_other_try_would_help_fails_at_once(error: LakehouseError, attempt: int) -> None:
    said = told(error, attempt=attempt)
    assert (type(said), said.description, said.allow_retries) == (dg.Failure, str(error), False)
    assert said.metadata["lakehouse/error"].value == type(error).__name__
