"""Commits that were parsed once are kept, as long as storage tells the same file."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lakehouse.base.clock import now_ms
from lakehouse.delta.log import fold
from lakehouse.store import StoredFile
from lakehouse_tests.log_builder import LogBuilder
from lakehouse_tests.memory_store import MemoryStore

OLD_MS = 1_700_000_000_000


class Storage(MemoryStore):
    """Files in memory, of which it is known which were read; with `etags`, it tells them."""

    def __init__(self, *, etags: bool = False) -> None:
        super().__init__()
        self.etags = etags

    def list(self, prefix: str) -> list[StoredFile]:
        found = super().list(prefix)
        return (
            [replace(file, etag=str(hash(self._files[file.name]))) for file in found]
            if self.etags
            else found
        )

    def date_all(self, modified_ms: int) -> None:
        for file in super().list(""):
            self.date(file.name, modified_ms)


def read(log: LogBuilder, storage: Storage) -> tuple[Sequence[str], Sequence[str]]:
    """The live files of the table, and what was read for them."""
    storage.was_read.clear()
    files = sorted(file.path for file in log.snapshot().files)
    return files, [name[-25:-5].lstrip("0") or "0" for name in storage.was_read]


def test_a_commit_is_read_once() -> None:
    storage = Storage()
    log = LogBuilder(storage).create().append([("a", 1)])
    storage.date_all(OLD_MS)
    assert read(log, storage) == (["a"], ["0", "1"])
    assert read(log, storage) == (["a"], [])
    log.append([("b", 1)])
    assert read(log, storage) == (["a", "b"], ["2"])
    # So young a file may have a successor of the same time.
    assert read(log, storage) == (["a", "b"], ["2"])
    another = LogBuilder(Storage()).create().append([("c", 1)])
    assert [file.path for file in another.snapshot().files] == ["c"]


@pytest.mark.parametrize("etags", [False, True])
def test_a_commit_in_the_place_of_another_is_read(etags: bool) -> None:
    storage = Storage(etags=etags)
    log = LogBuilder(storage).create().append([("a", 1)])
    storage.date_all(OLD_MS)
    assert read(log, storage)[0] == ["a"]
    log = LogBuilder(storage).create().append([("z", 1)])  # as long as the one before
    storage.date_all(OLD_MS if etags else OLD_MS + 1)
    assert read(log, storage)[0] == ["z"]


def test_by_their_etags_young_commits_are_kept_too() -> None:
    storage = Storage(etags=True)
    log = LogBuilder(storage).create().append([("a", 1)])
    assert [read(log, storage)[1] for _ in range(2)] == [["0", "1"], []]


def test_no_young_commit_of_the_same_size_and_time_is_mistaken_for_another() -> None:
    storage, at_ms = Storage(), now_ms()
    for name in "az":
        log = LogBuilder(storage).create().append([(name, 1)])
        storage.date_all(at_ms)
        assert read(log, storage)[0] == [name]


def test_what_was_read_while_another_file_lay_there_is_not_kept() -> None:
    class Swapped(Storage):
        """Whose files are others, of the same sizes, while they are read."""

        is_swapped = False

        def read(self, name: str) -> bytes:
            content = super().read(name)
            return (
                content.replace(b'"path": "a"', b'"path": "z"').replace(
                    b'"path":"a"', b'"path":"z"'
                )
                if self.is_swapped
                else content
            )

        def stat(self, name: str) -> StoredFile | None:
            found = super().stat(name)
            return replace(found, modified_ms=OLD_MS + 1) if found and self.is_swapped else found

    storage = Swapped()
    log = LogBuilder(storage).create().append([("a", 1)])
    storage.date_all(OLD_MS)
    storage.is_swapped = True
    assert read(log, storage)[0] == ["z"]
    storage.is_swapped = False
    assert read(log, storage)[0] == ["a"]


def test_kept_commits_are_forgotten_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, logs = Storage(), dict[str, LogBuilder]()
    for name in "abc":
        logs[name] = LogBuilder(storage, f"bronze/{name}").create()
    storage.date_all(OLD_MS)
    each = 2_048 + max(file.size_bytes for file in MemoryStore.list(storage, ""))
    monkeypatch.setattr(fold, "_KEPT_BYTES", 2 * each + 100)
    for name in "abc":
        read(logs[name], storage)
    assert {name: len(read(logs[name], storage)[1]) for name in "cab"} == {"c": 0, "a": 1, "b": 1}
