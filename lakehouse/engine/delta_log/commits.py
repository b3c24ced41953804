"""The commits of a log, read and parsed."""

from collections.abc import Iterator, Sequence

from lakehouse.engine.delta_log.actions import parse_actions
from lakehouse.engine.delta_log.fold import ReadCommit
from lakehouse.engine.delta_log.log_segment import version_of
from lakehouse.engine.store import Store, StoredFile


def read_commits(store: Store, files: Sequence[StoredFile]) -> Iterator[ReadCommit]:
    """Each commit of these files, in their order; its time is the log's own where the log tells one."""
    for file, data in zip(files, store.read_many([file.name for file in files]), strict=True):
        actions = parse_actions(data, file.name)
        yield ReadCommit(version=version_of(file), committed_ms=actions.info.committed_ms or file.modified_ms, actions=actions)
