"""The script that measures the house counts what it says."""

from benchmarks.house import count_tokens, folder_cycles


def test_comments_and_docstrings_do_not_count_as_tokens() -> None:
    source = '"""A module."""\n\n\ndef f():\n    """Doc."""\n    return 1  # why\n'
    assert count_tokens(source) == 7  # def f ( ) : return 1


def test_two_folders_that_import_each_other_are_a_cycle_and_a_subfolder_is_none() -> None:
    graph = {
        "lakehouse.core.costs.a": {"lakehouse.core.vacuum.a", "lakehouse.core.costs.b"},
        "lakehouse.core.vacuum.b": {"lakehouse.core.costs.b"},
        "lakehouse.core.vacuum.a": {"lakehouse.core.text"},
        "lakehouse.core.text": {"lakehouse.core.vacuum.a"},
    }
    assert folder_cycles(graph) == [("lakehouse.core.costs", "lakehouse.core.vacuum")]
