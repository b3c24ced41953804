"""The state of a table's log by which a vacuum decides, and whether it is still that state."""

from collections.abc import Iterator
from dataclasses import dataclass

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.delta.table_facts import LogFile, TableFacts
from lakehouse.core.errors import Broken
from lakehouse.core.inventory import TableFiles, fold_table_files
from lakehouse.engine.delta_log import newest_first
from lakehouse.engine.inventory import Places
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store

NO_VERSION = -1  # in the place of a version: no commit yet


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLog:
    """What the log of a table says, and the table's files by it."""

    facts: TableFacts
    table_files: TableFiles

    @property
    def file_count(self) -> int:
        """Files that the log tells of, live and removed."""
        return len(self.table_files.live) + len(self.table_files.stones)


def read_log(lake: Lake, table: str, *, place: Places) -> KnownLog | None:
    """The log of a table now; `None` where there is none."""
    facts = lake.facts(table)
    return facts and KnownLog(facts=facts, table_files=fold_table_files(facts.snapshot, place=place))


def has_newer_version(lake: Lake, facts: TableFacts) -> bool:
    """Whether a version follows the known one.

    Raises:
        Broken: the known commit is gone, or another one is in its place: the log was put back, and what it needs now is unknown.
    """
    table, version, known = facts.snapshot.table, facts.snapshot.version, facts.newest
    if found := changed(lake, table, known):
        raise Broken(
            f"vacuum of {table}: the commit of version {version} is not the one that it began with: {known.name} {found}; was the "
            "log put back to an older state? The rest was left alone: once the log is as it should be, run the vacuum again"
        )
    return lake.store.stat(next_commit(table, version)) is not None


def changed(lake: Lake, table: str, known: LogFile) -> str:
    """What became of a file of a table's log: `is gone` or `has … bytes`; empty where it is as it was."""
    now = lake.store.stat(known.name)
    # S3 tells times in seconds, and some servers list them in other digits than a HEAD has.
    off_ms = 1_000 if lake.on_s3(table) else 0
    if now is None:
        return "is gone"
    if now.size_bytes != known.size_bytes or abs(now.modified_ms - known.modified_ms) > off_ms:
        return f"has {now.size_bytes} bytes for {known.size_bytes}, or was written again"
    return ""


def next_commit(table: str, version: int) -> str:
    """The name of the commit that would follow this version of a table."""
    return f"{table}/_delta_log/{version + 1:020}.json"


class OlderCommits:
    """Commits below a table's known history, each read once, however often the history is a newer one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: list[Commit] = []  # newest first, without a gap
        self._rest: Iterator[Commit] = iter(())

    def below(self, history: Commits) -> Iterator[Commit]:
        """The commits, newest first, from those of `history` on.

        Raises:
            Broken, Transient: as for `newest_first`.
        """
        newest = self._read[0].version if self._read else NO_VERSION
        newer = [commit for commit in reversed(history.commits) if commit.version > newest]
        if newer and newer[-1].version > newest + 1:
            self._read, self._rest = [], newest_first(self._store, history)
        else:
            self._read = [*newer, *self._read]
        yield from self._read
        for commit in self._rest:
            self._read.append(commit)
            yield commit
