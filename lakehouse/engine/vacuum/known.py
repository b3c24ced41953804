"""The state of logs by which a vacuum decides, and whether it is still that state: the table's own log, and those of its neighbours."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lakehouse.core.delta.commits import Commit, History
from lakehouse.core.errors import Broken, Refused, Transient
from lakehouse.core.inventory import TableBooks
from lakehouse.core.vacuum import ASKED_AT_ONCE
from lakehouse.engine.delta_log import TableFacts, newest_first
from lakehouse.engine.inventory import open_books
from lakehouse.engine.lake import Lake
from lakehouse.engine.store import Store, StoredFile

_TRIES = 5
_OWN_FOLDER = "_lakehouse"
# In the place of a version: no commit yet.
_NO_VERSION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLog:
    """What the log of a table says, and the file of it that makes this version, as it was before the log was read."""

    facts: TableFacts
    commit: StoredFile


def read_log(lake: Lake, table: str) -> KnownLog | None:
    """The log of a table now; `None` where there is none.

    Raises:
        Transient: it changed under every try.
    """
    for _ in range(_TRIES):
        listed = {file.name: file for file in lake.store.list(f"{table}/_delta_log")}
        facts = lake.facts(table)
        if facts is None:
            return None
        version = f"{table}/_delta_log/{facts.layout.version:020}"
        # Of a log that was cleaned up to its newest checkpoint only that is left.
        of_it = [f"{version}.json", *(name for name in sorted(listed) if name.startswith(f"{version}.checkpoint."))]
        if commit := next((listed[name] for name in of_it if name in listed), None):
            return KnownLog(facts=facts, commit=commit)
    raise Transient(f"vacuum of {table}: its log changed {_TRIES} times while it was read; try again")


def newer_version(lake: Lake, known: KnownLog) -> int:
    """The newest version that follows the known one without a gap.

    Raises:
        Broken: the known commit is gone, or another one is in its place: the log was put back, and what it needs now is unknown.
    """
    table, version = known.facts.layout.table, known.facts.layout.version
    now = lake.store.stat(known.commit.name)
    # S3 tells times in seconds, and some servers list them in other digits than a HEAD has.
    off_ms = 1_000 if lake.settings.on_s3 else 0
    if now is None or now.size_bytes != known.commit.size_bytes or abs(now.modified_ms - known.commit.modified_ms) > off_ms:
        found = "is gone" if now is None else f"has {now.size_bytes} bytes for {known.commit.size_bytes}, or was written again"
        raise Broken(
            f"vacuum of {table}: the commit of version {version} is not the one that it began with: {known.commit.name} {found}; was the "
            "log put back to an older state? The rest was left alone: once the log is as it should be, run the vacuum again"
        )
    while lake.store.stat(f"{table}/_delta_log/{version + 1:020}.json"):
        version += 1
    return version


class OlderCommits:
    """Commits below a table's known history, each read once, however often the history is a newer one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: list[Commit] = []  # newest first, without a gap
        self._rest: Iterator[Commit] = iter(())

    def below(self, history: History) -> Iterator[Commit]:
        """The commits, newest first, from those of `history` on.

        Raises:
            Broken, Transient: as for `newest_first`.
        """
        newest = self._read[0].version if self._read else _NO_VERSION
        newer = [commit for commit in reversed(history.commits) if commit.version > newest]
        if newer and newer[-1].version > newest + 1:
            self._read, self._rest = [], newest_first(self._store, history)
        else:
            self._read = [*newer, *self._read]
        yield from self._read
        for commit in self._rest:
            self._read.append(commit)
            yield commit


class Neighbours:
    """The lake's other tables and the versions in which they were read; a table that is new, or has a newer version, may borrow more.

    New tables are seen two folders deep, as `silver/orders`; one that was not known and lies deeper is not.
    """

    def __init__(self, lake: Lake, table: str, *, landed: Iterable[str]) -> None:
        self._lake, self._table = lake, table
        self._landed = {prefix.rstrip("/") for prefix in landed}
        self._versions = dict.fromkeys(self._folders(), _NO_VERSION)

    def read(self, tables: Iterable[str]) -> Mapping[str, TableBooks]:
        """The books of these tables, those that are none left out.

        Raises:
            Refused: the log of one cannot be read.
        """
        names = sorted({*tables} - {self._table})
        books, unread = open_books(self._lake, names)
        if unread:
            name, why = next(iter(unread.items()))
            raise Refused(f"vacuum of {self._table}: {name} cannot be read, so that the files that it borrows are unknown: {why}")
        found = {each.table: each for each in books}
        self._versions |= {name: found[name].version if name in found else _NO_VERSION for name in names}
        return found

    def read_changed(self) -> Mapping[str, TableBooks]:
        """The books of those that are new, or have a commit more, since they were read last; errors as `read`.

        One small request for each table that was read before, and a listing for each of the lake's top folders.
        """
        names = [f"{name}/_delta_log/{version + 1:020}.json" for name, version in self._versions.items()]
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            newer = [name for name, found in zip(self._versions, pool.map(self._lake.store.stat, names), strict=True) if found]
        return self.read([*newer, *(folder for folder in self._folders() if folder not in self._versions)])

    def _folders(self) -> set[str]:
        store, no_table = self._lake.store, {"", ".", "..", _OWN_FOLDER, "_delta_log"}
        tops = [top for top in store.folders("") if top not in no_table and top not in self._landed]
        # A table of the uppermost level has its log and its partitions there.
        inner = {f"{top}/{name}" for top in tops for name in store.folders(top) if name not in no_table and "=" not in name}
        return {*tops, *inner} - {self._table}
