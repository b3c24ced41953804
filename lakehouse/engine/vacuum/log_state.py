"""The state of a table's log by which a vacuum decides, and whether it is still that state."""

from collections.abc import Iterator
from dataclasses import dataclass

from lakehouse.core.delta.commits import Commit, Commits
from lakehouse.core.errors import Broken, Transient
from lakehouse.core.inventory import TableFiles, fold_table_files
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.inventory import Places
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store, StoredFile

_TRIES = 5
NO_VERSION = -1  # in the place of a version: no commit yet


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLog:
    """What the log of a table says, the table's files by it, and the file that makes this version, as it was before the log was read."""

    facts: TableFacts
    table_files: TableFiles
    commit: StoredFile

    @property
    def file_count(self) -> int:
        """Files that the log tells of, live and removed."""
        return len(self.table_files.live) + len(self.table_files.stones)


def read_log(lake: Lake, table: str, *, place: Places) -> KnownLog | None:
    """The log of a table now; `None` where there is none.

    Raises:
        Transient: it changed under every try.
    """
    for _ in range(_TRIES):
        listed = {file.name: file for file in lake.store.list(f"{table}/_delta_log")}
        facts = lake.facts(table)
        if facts is None:
            return None
        version = f"{table}/_delta_log/{facts.snapshot.version:020}"
        # Of a log that was cleaned up to its newest checkpoint only that is left.
        of_it = [f"{version}.json", *(name for name in sorted(listed) if name.startswith(f"{version}.checkpoint."))]
        if commit := next((listed[name] for name in of_it if name in listed), None):
            return KnownLog(facts=facts, table_files=fold_table_files(facts.snapshot, place=place), commit=commit)
    raise Transient(f"vacuum of {table}: its log changed {_TRIES} times while it was read; try again")


def has_newer_version(lake: Lake, known: KnownLog) -> bool:
    """Whether a version follows the known one.

    Raises:
        Broken: the known commit is gone, or another one is in its place: the log was put back, and what it needs now is unknown.
    """
    table, version = known.facts.snapshot.table, known.facts.snapshot.version
    now = lake.store.stat(known.commit.name)
    # S3 tells times in seconds, and some servers list them in other digits than a HEAD has.
    off_ms = 1_000 if lake.on_s3(table) else 0
    if now is None or now.size_bytes != known.commit.size_bytes or abs(now.modified_ms - known.commit.modified_ms) > off_ms:
        found = "is gone" if now is None else f"has {now.size_bytes} bytes for {known.commit.size_bytes}, or was written again"
        raise Broken(
            f"vacuum of {table}: the commit of version {version} is not the one that it began with: {known.commit.name} {found}; was the "
            "log put back to an older state? The rest was left alone: once the log is as it should be, run the vacuum again"
        )
    return lake.store.stat(f"{table}/_delta_log/{version + 1:020}.json") is not None


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
