"""Reads and parses commits, and keeps parsed ones with the store, up to a bound.

Facts hold the newest commits only, so that reading a table stays cheap however long its log is.
That bound must decide nothing: whoever asks what happened since a version, or whether something
ever happened, asks `newest_first` or `history_since`.

**Safety properties** (tests in `test_kept_commits.py`)
- A kept commit stands for a file of the same name, size and time, and of the same etag if the
  storage has etags.
- Without etags, a file that is younger than the resolution of the storage's clock is read each
  time: the next file under its name, of a table that was created again, could have its time and
  size.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from threading import Lock
from weakref import WeakKeyDictionary

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.errors import Transient
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log.actions import parse_actions
from lakehouse.engine.delta_log.fold import ReadCommit, fold_commit
from lakehouse.engine.delta_log.log_segment import is_commit, log_folder
from lakehouse.engine.store import Store, StoredFile

_KEPT_BYTES = 64 * 1024 * 1024
# The times of some file systems are whole seconds, of FAT even ones.
_SETTLED_MS = 3_000
_PORTION = 100


def read_commits(store: Store, files: Sequence[StoredFile]) -> Iterator[ReadCommit]:
    """Each commit of these files, in their order; its time is the log's own where the log tells
    one.
    """
    kept = _of_stores.setdefault(store, _KeptCommits())
    known = {file: commit for file in files if (commit := kept.get(file)) is not None}
    data = store.read_many([file.name for file in files if file not in known])
    asked_ms = now_ms()
    for file in files:
        if (commit := known.get(file)) is None:
            content = next(data)
            actions = parse_actions(content, file.name)
            version = int(file.name.rpartition("/")[2][:20])
            commit = ReadCommit(
                fold_commit(actions, version=version, modified_ms=file.modified_ms), actions
            )
            actions.info = {}  # it is told by the commit, and would be kept beside it
            is_settled = file.etag or (
                file.modified_ms < asked_ms - _SETTLED_MS and store.stat(file.name) == file
            )
            if is_settled and len(content) == file.size_bytes:
                kept.add(file, commit)
        yield commit


def newest_first(store: Store, history: Commits, *, over_gaps: bool = False) -> Iterator[Commit]:
    """The table's commits, newest first: those of `history`, then older ones, back to the first gap
    in the log or `over_gaps`, too.

    The older ones are read a portion at a time, so whoever stops early pays for no more.

    Raises:
        Broken: a commit is damaged.
        Transient: the log was cleaned up while it was read.
    """
    yield from reversed(history.commits)
    first = history.commits[0].version if history.commits else None
    if first == 0 or (first is None and not over_gaps):
        return
    folder = log_folder(history.table)
    listed = {file.name: file for file in store.list(folder) if is_commit(file.name)}
    if first is not None:
        listed = {name: file for name, file in listed.items() if name < f"{folder}{first:020}"}
    older = [listed[name] for name in sorted(listed, reverse=True)]
    if first is not None and not over_gaps:
        names = (f"{folder}{version:020}.json" for version in range(first - 1, -1, -1))
        older = [listed[name] for name in takewhile(listed.__contains__, names)]
    for start in range(0, len(older), _PORTION):
        try:
            portion = [each.commit for each in read_commits(store, older[start : start + _PORTION])]
        except FileNotFoundError as error:
            raise Transient(
                f"log of {history.table}: it was cleaned up while it was read ({error}); try again"
            ) from error
        yield from portion


def history_since(store: Store, history: Commits, version: int) -> Commits:
    """The commits after `version`, however many there are; fewer where the log no longer holds them
    all. It raises as `newest_first`.
    """
    commits = [*takewhile(lambda commit: commit.version > version, newest_first(store, history))]
    return replace(history, commits=tuple(reversed(commits)))


class _KeptCommits:
    """Commits by their files, up to so many bytes of memory, about; who was asked for longest ago
    goes first.
    """

    def __init__(self) -> None:
        self._lock, self._commits, self._bytes = Lock(), OrderedDict[StoredFile, ReadCommit](), 0

    def get(self, file: StoredFile) -> ReadCommit | None:
        with self._lock:
            if (commit := self._commits.get(file)) is not None:
                self._commits.move_to_end(file)
            return commit

    def add(self, file: StoredFile, commit: ReadCommit) -> None:
        with self._lock:
            if file in self._commits or _kept_bytes(file) > _KEPT_BYTES // 4:
                return
            self._bytes += _kept_bytes(file)
            self._commits[file] = commit
            while self._bytes > _KEPT_BYTES:
                self._bytes -= _kept_bytes(self._commits.popitem(last=False)[0])


def _kept_bytes(file: StoredFile) -> int:
    """The bytes of memory that a parsed commit takes, by trial: as many as its file has, and 2 KiB
    beside.
    """
    return file.size_bytes + 2_048


_of_stores = WeakKeyDictionary[Store, _KeptCommits]()
