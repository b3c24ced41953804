"""What a faulty compaction's undoing tells, whoever writes beside it, and whatever fails; RESTORE itself is told like a story here."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from lakehouse.base.errors import Transient
from lakehouse.compact import verify
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake
from lakehouse.store import StoredFile
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore
from lakehouse_tests.support.example_lake import facts_of

KEY = "bronze/events"
LOST = SparkConnectGrpcException("the session is gone", errorClass="INVALID_HANDLE.SESSION_CLOSED")
REFUSED = SparkConnectGrpcException("no right to write", errorClass="SOME_REFUSAL")
FOUND = f"compaction of {KEY}: version 2 must have the rows of version 1, but rows differ"


class Bucket(MemoryStore):
    """A store whose listings fail once `is_down`."""

    is_down = False

    def list(self, prefix: str) -> list[StoredFile]:
        if self.is_down:
            raise Transient("S3 answers SlowDown (503)")
        return super().list(prefix)


class Table:
    """A table whose version 2 is a faulty compaction. If `is_beside`, somebody commits between our look and the RESTORE.

    If it `fails`, the RESTORE raises `error`, after its commit if `is_committed`; without an `error` the log does not answer after it.
    Somebody makes `later` commits before anybody looks.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        is_beside: bool = False,
        fails: bool = False,
        error: Any = None,
        is_committed: bool = False,
        later: int = 0,
    ) -> None:
        self.store = Bucket()
        self.lake = replace(lake, store=self.store)
        log = LogBuilder(self.store, KEY).create().append([("a", 1), ("b", 1)])
        self.log = log.optimize(["a", "b"], into=("c", 2))
        self.is_beside, self.later, self.sent = is_beside, later, 0
        self.fails, self.error, self.is_committed = fails, error, is_committed

    def send(
        self, _lake: object, _spark: object, before: Snapshot, _newest: int, mark: str
    ) -> None:
        """Stands for the statement."""
        if self.is_beside:
            self.log.append([("more", 1)])
        self.sent += 1
        if self.is_committed or not self.fails:
            told = {"restored": before.version, "mark": mark}
            self.log.commit("RESTORE", user_metadata=json.dumps(told))
            for number in range(self.later):
                self.log.append([(f"later-{number}", 1)])
        self.store.is_down = self.fails and self.error is None
        if self.error:
            raise self.error

    def undo(
        self, monkeypatch: pytest.MonkeyPatch, *, after: Callable[[], object] = lambda: None
    ) -> str:
        """What is told of version 2; `after` happens before it is undone."""
        facts = facts_of(self.lake, KEY)
        after()
        monkeypatch.setattr(verify, "_send", self.send)
        faulty, nothing_runs = facts.history.commits[-1], cast("Any", None)
        return verify.undo(self.lake, nothing_runs, facts.snapshot, faulty, "rows differ")


OVER = (
    "Version 1 is restored by version 4, but another writer committed just before: "
    "the rows of version(s) 3 are in no newer version. Check versions 3 to 4"
)


def test_nothing_is_restored_over_what_somebody_wrote_after_it(
    memory: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(memory)
    told = table.undo(monkeypatch, after=lambda: table.log.append([("after", 1)]))
    why = "because another writer has committed after version 2. Compare versions 1 and 3"
    assert told == f"{FOUND}. Nothing is restored, {why}"
    assert table.sent == 0


UNKNOWN = (
    "RESTORE to version 1 was sent, but its result is unknown ({}). "
    "If no version after 2 is this RESTORE, use RESTORE to version 1"
)
# Who writes, which RESTORE fails, with what (`None`: the log does not answer after it), whether it was committed; and what is told.
BY_HAND = "Restoring version 1 failed (SparkConnectGrpcException): use RESTORE to version 1 by hand"
DID_IT = {"fails": True, "is_committed": True}
STORIES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing else happens": ({}, "Version 1 is restored"),
    "somebody writes beside it": ({"is_beside": True}, OVER),
    "many commits follow before anybody looks": ({"later": 600}, "Version 1 is restored"),
    "the log does not answer after it": (DID_IT, UNKNOWN.format("Transient")),
    "the server is lost, and did it": ({**DID_IT, "error": LOST}, "Version 1 is restored"),
    "the server is lost, and may do it": (
        {"fails": True, "error": LOST},
        UNKNOWN.format("SparkConnectGrpcException"),
    ),
    "it is refused": ({"fails": True, "error": REFUSED}, BY_HAND),
}


@pytest.mark.parametrize(("story", "told"), STORIES.values(), ids=STORIES)
def test_a_restore_is_told_as_what_it_is_known_to_be(
    memory: Lake, monkeypatch: pytest.MonkeyPatch, story: dict[str, Any], told: str
) -> None:
    assert Table(memory, **story).undo(monkeypatch) == f"{FOUND}. {told}"
