"""The script that measures the house counts what it says, and the house stays within its bounds."""

import pytest

from benchmarks.house import WAYS, count_tokens, knob_count, loaded_modules
from lakehouse.base.reasons import Reason


def test_comments_and_docstrings_do_not_count_as_tokens() -> None:
    source = '"""A module."""\n\n\ndef f():\n    """Doc."""\n    return 1  # why\n'
    assert count_tokens(source) == 7  # def f ( ) : return 1


@pytest.mark.parametrize("way", WAYS)
def test_each_way_through_the_product_loads_at_most_85_modules(way: str) -> None:
    """More means that a module imports what this way does not need, or that modules are too small."""
    assert loaded_modules(WAYS[way]) <= 85


def test_concepts_that_users_meet_stay_few() -> None:
    """Before adding a reason or a knob, remove one."""
    assert len(Reason) <= 50
    assert knob_count() <= 40
