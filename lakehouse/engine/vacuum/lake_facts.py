"""The facts of a lake for a run of vacuums: read once, and kept current by asking for what changed.

1. The newest report of each configuration is read in one pass: the tables that it shows, and the rows of each. Where young ones show all
   that is declared, each upper folder beside is listed for a log; else the lake is.
2. Each table's log is read once: the table is vacuumed by it in its turn, and the others know by it which files the table borrows.
3. From then on two HEADs for each table find newer commits, and a log that was made anew or put back; a listing of the upper folders
   finds new tables. Only their logs are read.

**Safety properties**
- A table at most two folders deep is known even if it is not declared, no report shows it, and its
  first commits are gone (`test_faults.py`, `test_adopted.py`).
- A file that another table borrowed counts as borrowed to the end of the run.
- Nothing is deleted where the lake holds files at the place of a table that lies elsewhere: a clone
  there would borrow files unseen (`test_adopted.py`).
- A table whose log cannot be read holds back the vacuum of each table into whose folder a readable
  path of that log leads. If neither a checkpoint nor the first commit shows which files it reads,
  it holds back all others (`test_unread.py`).
- A table that lies elsewhere and is not there holds back all others, too, if a vacuum once found
  it, or if its storage holds nothing else: its disk may be away (`test_adopted.py`).
- The tables are asked before the first deletion of a run, and before each batch once the last
  answer is ten seconds old, or a tenth of a second for each table. So asking takes at most twenty
  requests per second, however many tables there are (`test_lake.py`, `test_meanwhile.py`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from hashlib import blake2b
from itertools import chain

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import LogFile
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.inventory.table_files import table_roots
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE
from lakehouse.core.vacuum.mode import MAX_REPORT_HOURS
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.stored_reports import ReportRows, newest_report, stamps_of
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver, landing_prefixes
from lakehouse.engine.vacuum.log_state import KnownLog, UnreadLog, read_log, salvage_log

_OWN_FOLDER = "_lakehouse"
# The records of where a vacuum once found a table that lies elsewhere, `<key>/<digest of the address>`.
_FOUND = f"{_OWN_FOLDER}/adopted"
_ASK_AGAIN_MS, _ASK_AGAIN_MS_PER_TABLE = 10_000, 100
# Each takes about 1.2 KB of memory. The log of a table beyond them is read a second time, in its turn.
_KEPT_FILES = 200_000
# A table that spreads its files over so many folders has no others two folders deep.
_SPREAD_FOLDERS = 1_000


class LakeFacts:
    """The facts of one run over tables of `lake`. `declared` are the lake's tables, `wanted` the keys of those in the run (`None`: all).

    `tables` are the folders that look like a table, `there` those that are one. `lent` are files of any table (relative to the lake)
    that another one reads, `unplaced` the last parts of paths of which nobody can tell whether they lead into the lake.
    """

    def __init__(
        self, lake: Lake, declared: Sequence[Table], *, wanted: Collection[str] | None = None
    ) -> None:
        self.lake, self.declared, self.landed = lake, declared, landing_prefixes(lake, declared)
        self.tables, self.there = set[str](), set[str]()
        self.lent, self.unplaced = frozenset[str](), frozenset[str]()
        self.transactions: dict[str, Mapping[str, int]] = {}
        self._wanted = {table.key for table in declared} if wanted is None else wanted
        self._place = PathResolver(lake)
        self._kept: dict[str, KnownLog] = {}
        self._newest: dict[str, LogFile | None] = {}
        self._unread: dict[str, UnreadLog] = {}
        self._spread_folders = set[str]()
        self._remembered = set[str]()
        self._current_ms: int | None = None
        self._was_asked = False

    def versioned_of(self, table: str) -> bool | None:
        """Whether the bucket of a table keeps versions; `None` if unknown."""
        if table in self.lake.elsewhere:
            return None if self.lake.on_s3(table) else False
        return self._versioned

    @cached_property
    def _versioned(self) -> bool | None:
        return self.lake.store.keeps_versions()

    def log(self, table: str) -> KnownLog | None:
        """The log of a table as it is now, read again only if it changed; `None` where there is none."""
        known = self._kept.pop(table, None)
        if known is None or self.lake.has_moved_on(table, known.facts.newest):
            known = read_log(self.lake, table, place=self._place)
            self._learn(table, known)
        if known is not None:
            self._kept[table] = known
        return known

    def take(self, table: str) -> KnownLog | None:
        """The log that is known, which is the caller's own from then on; what the table borrows stays known here."""
        return self._kept.pop(table, None) or self.log(table)

    def report_of(self, table: Table) -> tuple[ReportRows | None, str]:
        """The newest report that shows a table, and why there is none, or which other one cannot be used."""
        if table.key in self.lake.elsewhere:
            return None, "the table lies outside of the lake, whose reports show nothing of it"
        reports, problem = self._reports
        found = next((rows for rows in reports if table.key in rows.tables), None)
        if reports and found is None:
            newest = reports[0].report.name
            problem = (
                problem
                or f"the report {newest} shows nothing of {table.key}: is it older than the table, or another prefix's?"
            )
        return found, problem

    def read(self, table: Table) -> None:
        """Makes known what every table of the lake borrows, for the plan of one.

        Raises:
            Refused: the log of another table that may borrow files cannot be read, or a table elsewhere has its key.
        """
        if self._current_ms is None:
            self._current_ms, self._newest = now_ms(), dict.fromkeys(self._folders()) | self._newest
            self._read_tables(
                {each.key for each in self.declared}.union(
                    *(rows.tables for rows in self._reports[0])
                )
            )
        elif self._is_old():
            self._ask_again()
        # Storage is asked for the tables that no report shows.
        self._read_tables(self._unshown if self._is_shown_whole(table) else self._listed)
        self._read_tables(self._inside)
        self._refuse_unread(table.key)

    def ask_before_deletion(self, table: str) -> None:
        """The same, just before files of `table` go: new tables and newer versions since the last answer, unless that is young."""
        if not self._was_asked or self._is_old():
            self._ask_again()
            self._was_asked = True
        self._refuse_unread(table)

    def remember_found(self) -> None:
        """Write down which tables that lie elsewhere were found, so that later runs miss them where they are gone."""
        new = sorted(self.lake.elsewhere.keys() & self.there - self._remembered)
        self._remembered.update(new)
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            for _ in pool.map(
                lambda key: self.lake.store.put_if_absent(
                    self._found_name(key), self.lake.elsewhere[key].encode()
                ),
                new,
            ):
                pass

    @cached_property
    def _reports(self) -> tuple[list[ReportRows], str]:
        """The newest report of each configuration, newest first, since a filtered one knows nothing of the rest; the first problem."""
        store, found, problem = self.lake.store, list[ReportRows](), ""
        for configuration in dict.fromkeys(name for name, _ in stamps_of(store)):
            try:
                report = newest_report(store, now_ms=now_ms(), configuration=configuration)
                found += [ReportRows(store, report)] if report else []
            except Refused as error:
                problem = problem or str(error)
        return sorted(found, key=lambda rows: rows.report.created_ms, reverse=True), problem

    def _is_shown_whole(self, table: Table) -> bool:
        """Whether young reports show all that is declared, so that nobody has to list the lake to know its tables.

        A configuration that stopped still shows its tables, but no clone that was made beside them since.
        """
        reports, problem = self._reports
        young = [rows for rows in reports if rows.report.age_hours(now_ms()) <= MAX_REPORT_HOURS]
        shown = {table.key, *(each.key for each in self.declared)} - self.lake.elsewhere.keys()
        return (
            bool(young)
            and not problem
            and all(any(key in rows.tables for rows in young) for key in shown)
        )

    @cached_property
    def _listed(self) -> set[str]:
        store = self.lake.store
        return table_roots(each.key.removeprefix(store.prefix) for each in store.walk(""))

    @cached_property
    def _unshown(self) -> set[str]:
        """The tables among the lake's upper folders that nobody declared and no report shows."""
        return self._with_log([folder for folder in self._newest if folder not in self.tables])

    @cached_property
    def _inside(self) -> set[str]:
        """The tables up to two folders deep in those that lie elsewhere: no report and no listing of the lake shows them."""

        def below(folder: str) -> list[str]:
            names = self.lake.store.folders(folder)
            return [
                f"{folder}/{name}"
                for name in names
                if name[:1] not in ("", ".", "_") and "=" not in name
            ]

        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            first = [*chain.from_iterable(pool.map(below, self.lake.elsewhere))]
            found = [
                *first,
                *chain.from_iterable(
                    pool.map(
                        below, [folder for folder in first if folder not in self._spread_folders]
                    )
                ),
            ]
        return self._with_log(found)

    def _with_log(self, folders: Sequence[str]) -> set[str]:
        """The folders in which a log lies. Only a listing finds an old one, which may lack its first commit and `_last_checkpoint`."""
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            logs = pool.map(self.lake.store.list, [f"{folder}/_delta_log" for folder in folders])
            return {folder for folder, files in zip(folders, logs, strict=True) if files}

    def _is_old(self) -> bool:
        return now_ms() - (self._current_ms or 0) >= max(
            _ASK_AGAIN_MS, _ASK_AGAIN_MS_PER_TABLE * len(self._newest)
        )

    def _ask_again(self) -> None:
        asked_ms = now_ms()
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            moved = pool.map(self.lake.has_moved_on, self._newest, self._newest.values())
            other = [
                table for table, has_moved in zip(self._newest, moved, strict=True) if has_moved
            ]
        self._read({*other, *self._unread, *(self._folders() - self._newest.keys())})
        self._current_ms = asked_ms

    def _read_tables(self, tables: Set[str]) -> None:
        new = tables - self.tables
        self.tables |= new
        self._read(new)

    def _read(self, tables: Iterable[str]) -> None:
        for table in sorted(tables):
            self._kept.pop(table, None)
            try:
                if (
                    table in self._wanted
                    and sum(each.file_count for each in self._kept.values()) < _KEPT_FILES
                ):
                    self.log(table)
                else:
                    self._learn(table, read_log(self.lake, table, place=self._place))
            except LakehouseError as error:
                unread = salvage_log(self.lake, table, error, place=self._place)
                self._unread[table] = unread
                self.unplaced |= unread.unplaced
            else:
                if (
                    table in self.lake.elsewhere
                    and table not in self.there
                    and not self._may_never_have_been(table)
                ):
                    self._unread[table] = UnreadLog(
                        reason=f"there is no Delta table at {self.lake.elsewhere[table]}; accepted: the disk or folder there again, or a "
                        f"declaration (or a call of maintain) without this table; {_FOUND}/{table}/ tells where it once was"
                    )

    def _may_never_have_been(self, table: str) -> bool:
        """Whether a table that lies elsewhere is none yet, or none of Delta's: none of its key was ever found, and its storage is there."""
        return not self.lake.store.list(f"{_FOUND}/{table}") and self.lake.storage_is_there(table)

    def _found_name(self, table: str) -> str:
        return f"{_FOUND}/{table}/{blake2b(self.lake.elsewhere[table].encode(), digest_size=16).hexdigest()}"

    def _learn(self, table: str, known: KnownLog | None) -> None:
        self._unread.pop(table, None)
        self._newest[table] = known and known.facts.newest
        if known is None:
            self.there.discard(table)
            return
        table_files = known.table_files
        self.tables.add(table)
        self.there.add(table)
        if table in self.lake.elsewhere:
            folders = {
                name.partition("/")[0]
                for name in chain(table_files.live, table_files.stones)
                if "/" in name
            }
            if len(folders) >= _SPREAD_FOLDERS:
                self._spread_folders |= {f"{table}/{folder}" for folder in folders}
        self.transactions[table] = known.facts.snapshot.transactions
        borrowed = table_files.borrowed(self.tables)
        if not (borrowed <= self.lent and table_files.unplaced <= self.unplaced):
            self.lent, self.unplaced = self.lent | borrowed, self.unplaced | table_files.unplaced

    def _refuse_unread(self, table: str) -> None:
        for name, unread in self._unread.items():
            if name != table and unread.may_borrow_from(table, self.tables):
                raise Refused(
                    f"vacuum of {table}: {name} cannot be read, and may borrow files of {table}, which no vacuum can tell from orphans: "
                    f"{unread.reason}. This vacuum goes on once {name} can be read again, or lies outside of the lake"
                )

    def _folders(self) -> set[str]:
        """The lake's folders, two levels deep, as `silver/orders`; a new table that lies deeper is not seen."""
        store, no_table = self.lake.store, {"", ".", "..", _OWN_FOLDER, "_delta_log"}
        landed = {prefix.rstrip("/") for prefix in self.landed}
        names = store.folders("")
        if "_delta_log" in names:
            raise Refused(
                f"vacuum: the lake's root {self.lake.settings.root} is a Delta table itself, and may read files of any table in it; "
                "accepted: that table in a folder of its own, or its _delta_log gone"
            )
        tops = [name for name in names if name not in no_table and name not in landed]
        # A table of the uppermost level has its log and its partitions there.
        found = {
            *tops,
            *(
                f"{top}/{name}"
                for top in tops
                for name in store.folders(top)
                if name not in no_table and "=" not in name
            ),
        }
        for key in sorted(found & self.lake.elsewhere.keys()):
            if self.lake.holds_files(key):
                raise Refused(
                    f"vacuum: {key} is the table at {self.lake.elsewhere[key]}, but files lie at {self.lake.settings.root}/{key}, too, and "
                    f"what a table there borrows would not be seen; accepted: another key for {self.lake.elsewhere[key]}"
                )
        return found
