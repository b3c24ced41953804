"""The closed list of reasons: each is a sentence with numbers."""

import re

import pytest

from lakehouse.base.reasons import Reason


@pytest.mark.parametrize("each", Reason)
def test_a_reason_is_a_sentence_with_a_place_for_what_was_found(each: Reason) -> None:
    assert re.search(r"{\w+(:[a-z ]+)?}", each.value)
    assert "\n" not in each.value and not each.value.endswith(".")


def test_numbers_are_told_as_a_person_reads_them() -> None:
    numbers = {"files_removed": 6, "bytes_removed": 32_996, "files_added": 1, "where": ""}
    assert Reason.MERGEABLE_FILES.explain(**numbers).sentence == "6 files (32 KiB) merge into 1"
    assert Reason.PAUSED.explain(since=60_000, until="", why="").sentence.startswith(
        "paused since 1970-01-01 00:01 UTC"
    )


def test_a_number_that_is_missing_is_an_error_and_one_too_many_is_not() -> None:
    assert (
        Reason.BELOW_THRESHOLD.explain(mergeable=3, threshold=4, more=5).sentence
        == "3 mergeable files, 4 needed"
    )
    with pytest.raises(KeyError):
        str(Reason.BELOW_THRESHOLD.explain(mergeable=3).sentence)
