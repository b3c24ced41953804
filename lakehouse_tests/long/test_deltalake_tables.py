"""What a plan says of 200 random tables is what deltalake commits, and 60 compactions at once with 60 appends lose nothing."""

from pathlib import Path

import pytest

from lakehouse_tests.deltalake_tables import compare
from lakehouse_tests.engine.compaction.test_deltalake_run import append_and_compact_at_once


@pytest.mark.parametrize("number", range(20, 220))
def test_what_a_plan_says_of_a_random_table_is_what_deltalake_commits(
    tmp_path: Path, number: int
) -> None:
    assert compare(tmp_path, 1, number) == ()


def test_sixty_appends_and_sixty_compactions_at_once_lose_nothing(tmp_path: Path) -> None:
    append_and_compact_at_once(tmp_path, times=60)
