"""A table's log, read without Spark: what the table is made of, and what happened to it.

The log is replayed here, through the lake's own store, because deltalake's reader knows no tombstones, no transaction
ids and not how many rows a deletion vector deletes, without which neither plan nor health can be exact. What cannot be
counted rightly is refused by name.

Safety properties:
- Nothing is written.
- A layout is of one version: a log that changes while it is read is listed again from the start.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse.core.delta.commits import Commits
from lakehouse.core.delta.table_facts import LogFile, TableFacts
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.engine.delta_log.checkpoint import read_checkpoint
from lakehouse.engine.delta_log.commits import history_since, newest_first, read_commits
from lakehouse.engine.delta_log.fold import fold_layout
from lakehouse.engine.delta_log.log_segment import LogChanged, Segment, find_segment, log_folder
from lakehouse.engine.store import Store

__all__ = ["TableFacts", "garbage_uncollected", "history_since", "newest_first", "read_facts"]

_TRIES = 5


def read_facts(
    store: Store, key: str, *, uri: str, newest_commits: int = 500, version: int | None = None
) -> TableFacts | None:
    """The facts of the table in folder `key`, `None` where there is no table; `uri` is how Spark spells that folder.

    With `version`, the facts as they were then; a log whose cleanup went past it, or that is not there yet, is refused.

    The history, and with it `DataFile.compacted`, goes back as far as the log still has commits in JSON, at most
    `newest_commits`. What decides over rows asks `history_since` or `newest_first`, which have no such bound.

    Raises:
        Broken: a commit is missing or damaged, or so is the checkpoint.
        Refused: a table feature under which the log cannot be counted; a `version` that it does not reach.
        Transient: the log changed under every try to read it.
    """
    problem: Exception | None = None
    for _ in range(_TRIES):
        try:
            segment = find_segment(
                store.list(log_folder(key)), key, newest_commits=newest_commits, version=version
            )
            if segment is not None and version not in (None, segment.version):
                raise LogChanged(
                    f"log of {key}: its newest version up to {version} is {segment.version}"
                )
            with garbage_uncollected():
                return (
                    None
                    if segment is None
                    else _read(store, segment, uri=uri, newest_commits=newest_commits)
                )
        except (LogChanged, FileNotFoundError) as error:
            problem = error
    if not isinstance(problem, LogChanged):
        raise Transient(
            f"log of {key}: it changed {_TRIES} times while it was read ({problem}); try again"
        ) from problem
    if version is not None:
        raise Refused(
            f"{problem}, so version {version} cannot be told; accepted: a version that the log still reaches"
        ) from problem
    raise Broken(
        f"{problem}, so its newest version cannot be told: restore what is missing"
    ) from problem


@contextmanager
def garbage_uncollected() -> Iterator[None]:
    """Python's collector rests meanwhile: it would look again and again through a million values that are all still needed."""
    working = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if working:
            gc.enable()


def _read(store: Store, segment: Segment, *, uri: str, newest_commits: int) -> TableFacts:
    commits, newest = list(read_commits(store, segment.commits)), segment.newest
    return TableFacts(
        newest=LogFile(
            version=segment.version,
            name=newest.name,
            size_bytes=newest.size_bytes,
            modified_ms=newest.modified_ms,
        ),
        snapshot=fold_layout(segment, read_checkpoint(store, segment), commits, uri=uri),
        history=Commits(
            table=segment.table, commits=tuple(each.commit for each in commits[-newest_commits:])
        ),
    )
