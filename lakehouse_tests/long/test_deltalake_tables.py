"""What a plan says of 200 random tables is what deltalake commits."""

from pathlib import Path

import pytest

from lakehouse_tests.deltalake_tables import compare


@pytest.mark.parametrize("number", range(20, 220))
def test_what_a_plan_says_of_a_random_table_is_what_deltalake_commits(
    tmp_path: Path, number: int
) -> None:
    assert compare(tmp_path, 1, number) == ()
