"""Reads a version of a table from its log: its state and its history.

If the log changes meanwhile, it is read again. A checkpoint that cannot be read is left out: an
older checkpoint and the commits after it may lead to the same version (`log_segment.py` chooses
them).
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.snapshot import LogFile, TableFacts
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient
from lakehouse.engine.delta_log.checkpoint import read_checkpoint
from lakehouse.engine.delta_log.commits import read_commits
from lakehouse.engine.delta_log.fold import fold_layout
from lakehouse.engine.delta_log.log_contradictions import refuse_contradictions, refuse_wrong_totals
from lakehouse.engine.delta_log.log_segment import (
    LogChanged,
    LogContradiction,
    Segment,
    UnreadableCheckpoint,
    find_segment,
    log_folder,
)
from lakehouse.engine.store import Store

_TRIES = 5


def read_facts(
    store: Store, key: str, *, uri: str, newest_commits: int = 500, version: int | None = None
) -> TableFacts | None:
    """The facts of the table in folder `key`; `None` if there is no table.

    `uri` is the folder's URI as Spark spells it. `version` requests the facts at an older version.

    The history holds at most `newest_commits` commits, and none before a missing commit file.
    `DataFile.compacted` is derived from these commits and the commits after the checkpoint. Code
    that decides about rows uses `history_since` or `newest_first`, which have no such limit.

    Raises:
        Broken: a commit that is read is damaged. Or a commit or a checkpoint is missing, or a
            checkpoint is damaged, and the rest of the log does not replace it. The cause is a
            `LogContradiction` if the checkpoint contradicts other files of the log.
        Refused: a feature of the table makes it impossible to count files from the log, or the log
            cannot describe `version` (any more, or yet).
        Transient: the log changed during every attempt to read it.
    """
    problem: Exception | None = None
    unreadable: dict[str, UnreadableCheckpoint] = {}
    tries_left = _TRIES
    while tries_left:
        listing = store.list(log_folder(key))
        find = partial(find_segment, listing, key, newest_commits=newest_commits, version=version)
        try:
            segment = find(without=unreadable)
            if segment is None:
                return None
            if version not in (None, segment.version):
                raise LogChanged(f"log of {key}: it reaches only version {segment.version}")
            with garbage_uncollected():
                facts = _read(store, segment, uri=uri, newest_commits=newest_commits)
                return _with_note(facts, unreadable) if unreadable else facts
        except UnreadableCheckpoint as error:
            # A cleanup may delete a sidecar between the listing and the reading, so try once more.
            # If the second listing still has the checkpoint, its sidecar is lost.
            if error.lacks_sidecar and not isinstance(problem, UnreadableCheckpoint):
                tries_left -= 1
            else:
                # Not counted as a try, since the next round reads other files.
                unreadable[error.name] = error
            problem = error
        except LogContradiction as error:
            # The same contradiction in two readings is not due to a concurrent change.
            if str(error) == str(problem):
                raise Broken(f"{error}. {_remedy(find, unreadable, error)}") from error
            problem = error
            tries_left -= 1
        except (LogChanged, FileNotFoundError) as error:
            problem = error
            tries_left -= 1
    raise _failure(key, problem, unreadable, version=version) from problem


def _failure(
    key: str,
    problem: Exception | None,
    unreadable: Mapping[str, UnreadableCheckpoint],
    *,
    version: int | None,
) -> LakehouseError:
    """The error for a log that no attempt could read."""
    if unreadable:
        [*_, newest] = unreadable.values()
        return Broken(
            f"{newest}. The rest of the log does not replace this file ({problem}). Restore the "
            "file"
        )
    if not isinstance(problem, LogChanged):
        return Transient(
            f"log of {key}: it changed {_TRIES} times while it was read ({problem}); try again"
        )
    if version is not None:
        return Refused(
            f"{problem}, so version {version} cannot be read. Use a version that the log still "
            "describes"
        )
    return Broken(f"{problem}, so the newest version is unknown. Restore the missing log files")


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Pauses Python's garbage collector, which would repeatedly visit a million live values."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _remedy(
    find: Callable[..., Segment | None], unreadable: Iterable[str], error: LogContradiction
) -> str:
    """What to do about a contradiction.

    The checkpoint may be removed only if the rest of the log describes the whole table.
    """
    segment = find(without={*unreadable})
    names = {file.name for file in segment.checkpoint} if segment else set[str]()
    with suppress(LogChanged):
        if names and find(without={*unreadable, *names}) is not None:
            return (
                f"The rest of the log is complete: remove {', '.join(sorted(names))} and "
                "_last_checkpoint. The table can be read without these files"
            )
    if not error.evidence:
        return "Restore the log from a backup"
    return f"Restore the log from a backup, or remove {error.evidence} if you know that it is wrong"


def _with_note(facts: TableFacts, unreadable: Mapping[str, UnreadableCheckpoint]) -> TableFacts:
    """The facts, with the checkpoints that could not be read and the reasons."""
    reasons = {name: str(error) for name, error in unreadable.items()}
    log = replace(facts.snapshot.log, unreadable=reasons)
    return replace(facts, snapshot=replace(facts.snapshot, log=log))


def _read(store: Store, segment: Segment, *, uri: str, newest_commits: int) -> TableFacts:
    commits = list(read_commits(store, segment.commits))
    checkpoint = read_checkpoint(store, segment)
    refuse_contradictions(store, segment, checkpoint, commits)
    snapshot = fold_layout(segment, checkpoint, commits, uri=uri)
    refuse_wrong_totals(store, segment, snapshot)
    newest = segment.newest
    history = tuple(each.commit for each in commits[-newest_commits:])
    return TableFacts(
        newest=LogFile(
            version=segment.version,
            name=newest.name,
            size_bytes=newest.size_bytes,
            modified_ms=newest.modified_ms,
        ),
        snapshot=snapshot,
        history=Commits(table=segment.table, commits=history),
    )
