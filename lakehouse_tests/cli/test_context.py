"""One exit code for several tables."""

import pytest

from lakehouse.cli.context import worst_code
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient


@pytest.mark.parametrize(
    ("errors", "worst"),
    [
        ((), 0),
        ((Transient, Broken), 1),
        ((Refused, Transient, Broken), 1),
        ((Transient, Refused), 2),
        ((Transient, Transient), 75),
    ],
)
def test_what_a_person_must_look_at_is_not_hidden_by_what_may_be_tried_again(
    errors: tuple[type[LakehouseError], ...], worst: int
) -> None:
    assert worst_code(each.exit_code for each in errors) == worst
