"""Rows of earlier code are known by the newest commit that derived rows, whatever lies behind it."""

import json
from dataclasses import replace
from typing import Any

from lakehouse.delta.commits import CONSUME, INPUTS, Commit
from lakehouse.materialize.plan import code_changed_since, code_record

A, B, C = "ast1:a", "ast1:b", "ast1:c"


class Story:
    """A derived table's commits, written as a run writes them: with what is known before."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []

    def since(self, code: str | None) -> int | None:
        return code_changed_since(reversed(self.commits), code)

    def commit(self, written: dict[str, Any], **fields: Any) -> "Story":
        version = len(self.commits)
        commit = Commit(version=version, committed_ms=version, operation="MERGE", changed_data=True)
        self.commits.append(replace(commit, user_metadata=json.dumps(written), **fields))
        return self

    def merge(self, code: str | None) -> "Story":
        """New rows of this code; the others stay."""
        consumed = {f"{CONSUME}bronze/t/id": 1}
        return self.commit(code_record(code, self.since(code)), applications=consumed)

    def overwrite(self, code: str | None) -> "Story":
        """All rows computed by this code."""
        return self.commit({INPUTS: {}, **code_record(code)})


def test_a_table_without_rows_or_without_a_recorded_hash_has_no_change() -> None:
    assert Story().since(A) is None
    before = Story().commit({}, applications={f"{CONSUME}bronze/t/id": 1})
    assert before.since(A) is None
    assert Story().merge(A).commit({}, applications={f"{CONSUME}bronze/t/id": 2}).since(B) is None
    assert Story().commit({INPUTS: {}}).since(A) is None


def test_changed_code_is_known_since_the_newest_version_of_other_code() -> None:
    story = Story().merge(A).merge(A)
    assert (story.since(A), story.since(B)) == (None, 1)
    story.merge(B).merge(B)
    assert (story.since(B), story.since(A), story.since(C)) == (1, 3, 3)
    story.commit({"compaction": "a mark"})  # of no code
    assert story.since(B) == 1
    assert story.merge(A).since(A) == 3
    assert story.merge(A).since(A) == 3
    assert story.overwrite(A).since(A) is None
    assert story.since(B) == 7


def test_unknown_code_is_no_change_and_rows_of_two_codes_are_not_forgotten_over_it() -> None:
    story = Story().merge(A).merge(B)
    assert (story.since(B), story.since(None), story.since("ast2:a")) == (0, 0, 0)
    assert story.merge(None).since(B) == 0
    assert Story().merge(A).merge(None).since(B) is None


def test_what_others_write_there_is_not_read_as_a_version() -> None:
    story = Story().commit({"code": 5, "earlier_code": "x"})
    assert (story.since(A), story.since(None)) == (None, None)


def test_a_rebuild_records_the_code_alone() -> None:
    assert code_record(A) == {"code": A}
    story = Story().merge(A).merge(B)
    assert story.commit(code_record(B)).since(B) is None
