"""Commits further back than a table's facts hold them.

Facts hold the newest commits only, so that reading a table stays cheap however long its log is. That bound must decide nothing: whoever
asks what happened since a version, or whether something ever happened, asks here.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.errors import Transient
from lakehouse.engine.delta_log.commits import read_commits
from lakehouse.engine.delta_log.fold import fold_history
from lakehouse.engine.delta_log.log_segment import commits_before
from lakehouse.engine.store import Store

_PORTION = 100


def newest_first(store: Store, history: Commits) -> Iterator[Commit]:
    """The table's commits, newest first: those of `history`, then older ones, back to the first gap in the log.

    The older ones are read a portion at a time, so whoever stops early pays for no more.

    Raises:
        Broken: a commit is damaged.
        Transient: the log was cleaned up while it was read.
    """
    yield from reversed(history.commits)
    if not history.commits or history.commits[0].version == 0:
        return
    folder = f"{history.table}/_delta_log/"
    older = commits_before(store.list(folder), history.commits[0].version, folder=folder)
    for end in range(len(older), 0, -_PORTION):
        try:
            commits = fold_history(history.table, list(read_commits(store, older[max(0, end - _PORTION) : end]))).commits
        except FileNotFoundError as error:
            raise Transient(f"log of {history.table}: it was cleaned up while it was read ({error}); try again") from error
        yield from reversed(commits)


def history_since(store: Store, history: Commits, version: int) -> Commits:
    """The commits after `version`, however many there are; fewer where the log no longer holds them all.

    Raises:
        Broken, Transient: as for `newest_first`.
    """
    commits = [*takewhile(lambda commit: commit.version > version, newest_first(store, history))]
    return replace(history, commits=tuple(reversed(commits)))
