"""Our three errors in Dagster's words."""

import dagster as dg
import pytest

from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.defs.failures import MAX_RETRIES, ONCE_TAG, as_dagster_error, dagster_words


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 5), (1, 15), (2, 35)])
def test_a_transient_error_is_tried_again_with_growing_pauses_that_differ(attempt: int, seconds: int) -> None:
    pauses: list[float] = []
    for _ in range(20):
        said = as_dagster_error(Transient("the server is away"), attempt=attempt)
        assert isinstance(said, dg.RetryRequested) and said.seconds_to_wait is not None and said.max_retries == MAX_RETRIES
        pauses.append(said.seconds_to_wait)
    assert seconds <= min(pauses) < max(pauses) <= seconds * 1.5


@pytest.mark.parametrize(
    ("error", "attempt"), [(Transient("the server is away"), MAX_RETRIES), (Refused("ask otherwise"), 0), (Broken("look at it"), 0)]
)
def test_what_another_try_would_not_help_fails_with_its_own_sentence(error: LakehouseError, attempt: int) -> None:
    said = as_dagster_error(error, attempt=attempt)
    assert isinstance(said, dg.Failure)
    assert (said.description, said.allow_retries) == (str(error), False)
    assert said.metadata["lakehouse/error"].value == type(error).__name__


@pytest.mark.parametrize(("error", "tries"), [(Refused("no"), 1), (Broken("no"), 1), (ValueError("a bug"), 1)])
def test_a_run_that_is_not_worth_another_try_has_one(error: Exception, tries: int) -> None:
    seen: list[int] = []

    @dg.asset
    def failing(context: dg.AssetExecutionContext) -> None:
        seen.append(context.op_execution_context.retry_number)
        with dagster_words(context):
            raise error

    assert not dg.materialize([failing], raise_on_error=False).success
    assert len(seen) == tries


def test_a_run_whose_starter_decides_has_one_try_even_for_a_transient_error() -> None:
    seen: list[int] = []

    @dg.asset
    def failing(context: dg.AssetExecutionContext) -> None:
        seen.append(context.op_execution_context.retry_number)
        with dagster_words(context):
            raise Transient("the server is away")

    assert not dg.materialize([failing], raise_on_error=False, tags={ONCE_TAG: "true"}).success
    assert seen == [0]
