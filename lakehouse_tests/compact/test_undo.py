"""A faulty compaction is undone by a commit directly after its own, or not at all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakehouse.base.errors import Transient
from lakehouse.compact import verify
from lakehouse.compact.verify import Side
from lakehouse.delta.commits import brought_back_by
from lakehouse.lake.lake import Lake
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import facts_of

KEY = "bronze/events"
FOUND = f"compaction of {KEY}: version 3 must have the rows of version 2, but rows differ"


class Bucket(MemoryStore):
    """A store that creates no version, or whose answer to that is lost."""

    fault = ""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.fault == "is down":
            raise Transient("S3 answers SlowDown (503)")
        return super().put_if_absent(name, data) and self.fault != "denies it"


class Story:
    """A table whose version 3 is a faulty compaction of two files, one of them with deleted rows."""

    def __init__(self, lake: Lake, *, features: tuple[str, ...] = ()) -> None:
        self.store = Bucket()
        self.lake = replace(lake, store=self.store)
        self.log = LogBuilder(self.store, KEY)
        self.log.create(partition_by=["d"], features=features, reader_features=["deletionVectors"])
        self.log.append([("d=1/a", 1, 9), ("d=1/b", 2, 9), ("d=2/c", 3, 9)])
        self.log.delete_rows({"d=1/b": 4})

    def compacted(self) -> "Story":
        self.log.optimize(["d=1/a", "d=1/b"], into=("d=1/e", 2))
        return self

    def undo(self, *, after: Callable[[], object] = lambda: None) -> str:
        """What is told of version 3; `after` happens before it is undone."""
        facts = facts_of(self.lake, KEY)
        after()
        [commit] = facts.history.between(2, 3) or ()
        added = Side(version=3, files=tuple(facts.snapshot.files[:1]))
        return verify.undo(self.lake, facts.snapshot, commit, added, "rows differ")


# Where the restored files are in the log: in commits, or in a checkpoint.
CHECKPOINTS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "classic": {},
    "without statistics in JSON": {"stats": "struct"},
    "with sidecars": {"sidecars": 2},
}


@pytest.mark.parametrize("checkpoint", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_an_undo_brings_the_files_back_as_the_log_had_them(
    memory: Lake, checkpoint: dict[str, Any] | None
) -> None:
    story = Story(memory)
    before = story.log.snapshot()
    if checkpoint is not None:
        story.log.checkpoint(**checkpoint)
    assert story.compacted().undo() == f"{FOUND}. Version 2 is restored"
    facts = facts_of(story.lake, KEY)
    files = sorted(facts.snapshot.files, key=lambda file: file.path)
    kept = sorted(before.files, key=lambda file: file.path)
    if checkpoint == {"stats": "struct"}:
        kept[:2] = [replace(file, row_count=None) for file in kept[:2]]
    assert (facts.snapshot.version, files) == (4, kept)
    assert brought_back_by(facts.history.commits[-1]) == 2
    assert facts.history.commits[-1].parameters == {"version": "2"}


def test_a_table_with_commit_times_of_its_own_gets_a_later_one(memory: Lake) -> None:
    story = Story(memory, features=("inCommitTimestamp",)).compacted()
    story.undo()
    data = story.store.read(story.log.commit_name(4))
    assert b'"inCommitTimestamp":' in data.splitlines()[0]


def test_nothing_is_restored_over_what_somebody_wrote_after_it(memory: Lake) -> None:
    story = Story(memory).compacted()
    told = story.undo(after=lambda: story.log.append([("d=2/after", 1)]))
    why = "because another writer has committed after version 3"
    assert told == f"{FOUND}. Nothing is restored, {why}. Compare version 2 with the newest one"
    assert facts_of(story.lake, KEY).snapshot.version == 4


def test_a_restore_whose_answer_is_lost_is_known_by_its_mark(memory: Lake) -> None:
    story = Story(memory).compacted()
    story.store.fault = "denies it"
    assert story.undo() == f"{FOUND}. Version 2 is restored"


def test_a_restore_that_fails_says_what_to_do(memory: Lake) -> None:
    story = Story(memory).compacted()
    story.store.fault = "is down"
    assert story.undo() == (
        f"{FOUND}. Restoring version 2 failed (Transient: S3 answers SlowDown (503)). Unless a "
        "version after 3 is this RESTORE, use RESTORE to version 2"
    )
