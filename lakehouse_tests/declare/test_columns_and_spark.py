"""Large logs are read column by column: to the very same values, and without the garbage collector."""

from lakehouse.delta.file_columns import made_of_columns
from lakehouse.delta.snapshot import Tombstone


def test_values_made_of_columns_are_those_that_their_class_makes() -> None:
    stones = made_of_columns(
        Tombstone, 2, path=["a", "b"], deleted_ms=[1, None], size_bytes=iter([None, 2])
    )
    assert stones == [Tombstone(path="a", deleted_ms=1), Tombstone(path="b", size_bytes=2)]
    assert len(set(stones)) == 2
