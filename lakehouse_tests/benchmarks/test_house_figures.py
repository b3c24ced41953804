"""The script that measures the house counts what it says, and the house stays within its bounds."""

import pytest

from benchmarks.house import (
    WAYS,
    count_tokens,
    folder_cycles,
    import_graph,
    knob_count,
    loaded_modules,
)
from lakehouse.base.reasons import Reason


def test_comments_and_docstrings_do_not_count_as_tokens() -> None:
    source = '"""A module."""\n\n\ndef f():\n    """Doc."""\n    return 1  # why\n'
    assert count_tokens(source) == 7  # def f ( ) : return 1


def test_two_folders_that_import_each_other_are_a_cycle_and_a_subfolder_is_none() -> None:
    graph = {
        "lakehouse.core.costs.a": {"lakehouse.core.vacuum.a", "lakehouse.core.costs.b"},
        "lakehouse.core.vacuum.b": {"lakehouse.core.costs.b"},
        "lakehouse.core.vacuum.a": {"lakehouse.base.text"},
        "lakehouse.base.text": {"lakehouse.core.vacuum.a"},
    }
    assert folder_cycles(graph) == [("lakehouse.core.costs", "lakehouse.core.vacuum")]


@pytest.mark.parametrize("way", WAYS)
def test_each_way_through_the_product_loads_at_most_85_modules(way: str) -> None:
    """More means that a module imports what this way does not need, or that modules are too small."""
    assert loaded_modules(WAYS[way]) <= 85


def test_no_two_folders_import_each_other() -> None:
    assert folder_cycles(import_graph()) == []


def test_concepts_that_users_meet_stay_few() -> None:
    """Before adding a reason or a knob, remove one."""
    assert len(Reason) <= 60
    # The goal is 30. Archive, TTL, two for kept versions, one for cold files and one for the engine
    # came on top.
    assert knob_count() <= 36
