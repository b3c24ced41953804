"""Reads and parses commits, and caches parsed commits per store, up to a limit.

`TableFacts` hold only the newest commits, so that a table with a long log can be read quickly. No
decision may depend on how many they hold: code that asks what happened since a version, or whether
something ever happened, uses `newest_first` or `history_since`.

**Safety properties** (tests in `test_kept_commits.py`)
- A cached commit is used only for a file with the same name, size and time, and the same etag if
  the storage has etags.
- Without etags, a file is cached only if it is older than the resolution of the storage's clock.
  Otherwise, if the table is recreated, a new file may have the same name, time and size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from threading import Lock
from weakref import WeakKeyDictionary

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Transient
from lakehouse.delta.commits import Commit, Commits
from lakehouse.delta.log.actions import parse_actions
from lakehouse.delta.log.fold import ReadCommit, fold_commit
from lakehouse.delta.log.log_segment import is_commit, log_folder
from lakehouse.store import Store, StoredFile

_KEPT_BYTES = 64 * 1024 * 1024
# Without etags, only files older than this are cached, because some file systems store times in
# whole seconds, and FAT in steps of two seconds.
_SETTLED_MS = 3_000
_BATCH_COMMITS = 100


def read_commits(store: Store, files: Sequence[StoredFile]) -> Iterator[ReadCommit]:
    """The commits in these files, in the same order.

    A commit's time is the time in its content or, if that is missing, the modification time of the
    file.
    """
    cache = _caches.setdefault(store, _KeptCommits())
    cached = {file: cache.get(file) for file in files}
    contents = store.read_many([file.name for file in files if cached[file] is None])
    started_ms = now_ms()
    for file in files:
        commit = cached[file]
        if commit is None:
            content = next(contents)
            actions = parse_actions(content, file.name)
            version = int(file.name.rpartition("/")[2][:20])
            commit = ReadCommit(
                fold_commit(actions, version=version, modified_ms=file.modified_ms), actions
            )
            actions.info = {}  # the commit has it, and caching it twice wastes memory
            # Without an etag, the file must be old enough, and unchanged after it was read.
            is_settled = file.etag or (
                file.modified_ms < started_ms - _SETTLED_MS and store.stat(file.name) == file
            )
            if is_settled and len(content) == file.size_bytes:
                cache.add(file, commit)
        yield commit


def newest_first(store: Store, history: Commits, *, over_gaps: bool = False) -> Iterator[Commit]:
    """The table's commits, newest first: the commits of `history`, then older ones.

    The iteration ends at the first gap in the log, unless `over_gaps` is set. If `history` is
    empty, the newest commit is missing, which is such a gap. Older commits are read in batches, so
    a caller that stops early reads little.

    Raises:
        Broken: a commit is damaged.
        Transient: the log was cleaned up while it was read.
    """
    yield from reversed(history.commits)
    first = history.commits[0].version if history.commits else None
    if first == 0 or (first is None and not over_gaps):
        return
    folder = log_folder(history.table)
    files = {file.name: file for file in store.list(folder) if is_commit(file.name)}
    if first is None:
        names = sorted(files, reverse=True)
    elif over_gaps:
        older_names = [name for name in files if name < f"{folder}{first:020}"]
        names = sorted(older_names, reverse=True)
    else:
        expected_names = (f"{folder}{version:020}.json" for version in range(first - 1, -1, -1))
        names = [*takewhile(files.__contains__, expected_names)]
    for start in range(0, len(names), _BATCH_COMMITS):
        batch_files = [files[name] for name in names[start : start + _BATCH_COMMITS]]
        try:
            batch = [each.commit for each in read_commits(store, batch_files)]
        except FileNotFoundError as error:
            raise Transient(
                f"log of {history.table}: it was cleaned up while it was read ({error}); try again"
            ) from error
        yield from batch


def history_since(store: Store, history: Commits, version: int) -> Commits:
    """The commits after `version`, as far back as the log has them without a gap.

    Raises as `newest_first`.
    """
    commits = [*takewhile(lambda commit: commit.version > version, newest_first(store, history))]
    return replace(history, commits=tuple(reversed(commits)))


class _KeptCommits:
    """A cache of commits by file. It is emptied when it would take more than `_KEPT_BYTES`.

    A commit that alone would take more is not cached.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._commits = dict[StoredFile, ReadCommit]()
        self._bytes = 0

    def get(self, file: StoredFile) -> ReadCommit | None:
        return self._commits.get(file)

    def add(self, file: StoredFile, commit: ReadCommit) -> None:
        # As measured, a parsed commit takes the size of its file plus 2 KiB.
        kept_bytes = file.size_bytes + 2_048
        with self._lock:
            if file in self._commits or kept_bytes > _KEPT_BYTES:
                return
            if self._bytes + kept_bytes > _KEPT_BYTES:
                self._commits.clear()
                self._bytes = 0
            self._commits[file] = commit
            self._bytes += kept_bytes


_caches = WeakKeyDictionary[Store, _KeptCommits]()
