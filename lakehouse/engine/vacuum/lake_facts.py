"""The facts of a lake for a run of vacuums: read once, then updated by checking for changes.

1. The newest report of each configuration is read in one pass: the tables that it shows, and the
   rows of each. If recent reports show all declared tables, only the other upper folders are
   searched for a log; otherwise the whole lake is listed.
2. Each table's log is read once. It serves the vacuum of that table, and shows the other vacuums
   which files the table borrows.
3. From then on, two HEADs per table find newer commits, and a log that was created again or put
   back; a listing of the upper folders finds new tables. Only their logs are read.

**Safety properties**
- A table at most two folders deep is known even if it is not declared, no report shows it, and its
  first commits are gone (`test_faults.py`, `test_adopted.py`).
- A file that another table borrowed counts as borrowed until the end of the run.
- Nothing is deleted if the lake holds files at the key of a table outside the lake: a clone there
  would borrow files unseen (`test_adopted.py`).
- A table with an unreadable log blocks the vacuum of each table whose folder a readable path of
  that log leads into. If neither a checkpoint nor the first commit shows which files it reads, it
  blocks all other vacuums (`test_unread.py`).
- A missing table outside the lake also blocks all other vacuums, if a vacuum once found it, or if
  its storage holds nothing else: its disk may not be mounted (`test_adopted.py`).
- The tables are checked for changes before the first deletion of a run, and before a batch if the
  last check is older than ten seconds and a tenth of a second per table. So the checks take at most
  twenty requests per second for any number of tables (`test_lake.py`, `test_meanwhile.py`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain

from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.snapshot import LogFile
from lakehouse.core.errors import LakehouseError, Refused
from lakehouse.core.inventory.report_age import MAX_REPORT_AGE_HOURS
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE
from lakehouse.engine.clock import now_ms
from lakehouse.engine.inventory.stored_reports import ReportRows, newest_report, stamps_of
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver, landing_prefixes
from lakehouse.engine.vacuum.lake_tables import (
    FOUND,
    listed_tables,
    may_never_have_existed,
    remember_found,
    tables_inside,
    upper_folders,
    with_log,
)
from lakehouse.engine.vacuum.log_state import KnownLog, UnreadLog, read_log, salvage_log

_ASK_AGAIN_MS, _ASK_AGAIN_MS_PER_TABLE = 10_000, 100
# Each takes about 1.2 KB of memory. Beyond this number, a table's log is read again for its vacuum.
_KEPT_FILES = 200_000
# A table with its files in so many folders is not searched for other tables two folders deep.
_SPREAD_FOLDERS = 1_000


class LakeFacts:
    """The facts of one run over tables of `lake`.

    `declared` are the lake's tables, and `wanted` the keys of tables in the run (`None`: all).
    `tables` are the folders that look like tables, and `there` the folders that are tables. `lent`
    are files of any table, relative to the lake, that another table reads. `unplaced` are last
    parts of paths that may or may not lead into the lake.
    """

    def __init__(
        self, lake: Lake, declared: Sequence[Table], *, wanted: Collection[str] | None = None
    ) -> None:
        self.lake = lake
        self.declared = declared
        self.landed = landing_prefixes(lake, declared)
        self.tables = set[str]()
        self.there = set[str]()
        self.lent = frozenset[str]()
        self.unplaced = frozenset[str]()
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
        """The current log of a table, read again only if it changed; `None` if there is none."""
        known = self._kept.pop(table, None)
        if known is None or self.lake.has_moved_on(table, known.facts.newest):
            known = read_log(self.lake, table, place=self._place)
            self._learn(table, known)
        if known is not None:
            self._kept[table] = known
        return known

    def take(self, table: str) -> KnownLog | None:
        """Hands over the known log, which is no longer kept here; borrowed files stay known."""
        return self._kept.pop(table, None) or self.log(table)

    def report_of(self, table: Table) -> tuple[ReportRows | None, str]:
        """The newest report that shows a table; why there is none, or why another is unusable."""
        if table.key in self.lake.elsewhere:
            return None, "the table lies outside of the lake, whose reports show nothing of it"
        reports, problem = self._reports
        shown = next((rows for rows in reports if table.key in rows.tables), None)
        if reports and shown is None and not problem:
            problem = (
                f"the report {reports[0].report.name} shows nothing of {table.key}: it is older "
                "than the table, or of another prefix"
            )
        return shown, problem

    def read(self, table: Table) -> None:
        """Reads which files the lake's tables borrow, to plan the vacuum of `table`.

        Raises:
            Refused: the log of another table that may borrow files cannot be read, or files lie at
                the key of a table outside the lake.
        """
        if self._current_ms is None:
            self._current_ms = now_ms()
            self._newest = dict.fromkeys(self._folders()) | self._newest
            shown = (rows.tables for rows in self._reports[0])
            self._read_tables({each.key for each in self.declared}.union(*shown))
        elif self._is_old():
            self._ask_again()
        # Tables that no report shows are searched for in storage.
        self._read_tables(self._unshown if self._is_shown_whole(table) else self._listed)
        self._read_tables(self._inside)
        self._refuse_unread(table.key)

    def ask_before_deletion(self, table: str) -> None:
        """Reads what other tables borrow now, unless the last answer is recent."""
        if not self._was_asked or self._is_old():
            self._ask_again()
            self._was_asked = True
        self._refuse_unread(table)

    def remember_found(self) -> None:
        """Records the tables outside the lake that were found, so that later runs miss them."""
        new = sorted(self.lake.elsewhere.keys() & self.there - self._remembered)
        self._remembered.update(new)
        remember_found(self.lake, new)

    @cached_property
    def _reports(self) -> tuple[list[ReportRows], str]:
        """The newest report of each configuration, newest first, and the first problem.

        A report with a filter knows nothing of the rest of the lake.
        """
        store, reports, problem = self.lake.store, list[ReportRows](), ""
        for configuration in dict.fromkeys(name for name, _ in stamps_of(store)):
            try:
                report = newest_report(store, now_ms=now_ms(), configuration=configuration)
                reports += [ReportRows(store, report)] if report else []
            except Refused as error:
                problem = problem or str(error)
        reports.sort(key=lambda rows: rows.report.created_ms, reverse=True)
        return reports, problem

    def _is_shown_whole(self, table: Table) -> bool:
        """Whether recent reports show all declared tables, so that the lake need not be listed.

        A configuration that stopped still shows its tables, but no clone created since then.
        """
        reports, problem = self._reports
        recent = [
            rows for rows in reports if rows.report.age_hours(now_ms()) <= MAX_REPORT_AGE_HOURS
        ]
        if problem or not recent:
            return False
        wanted = {table.key, *(each.key for each in self.declared)} - self.lake.elsewhere.keys()
        return all(any(key in rows.tables for rows in recent) for key in wanted)

    @cached_property
    def _listed(self) -> set[str]:
        return listed_tables(self.lake)

    @cached_property
    def _unshown(self) -> set[str]:
        """The tables among the upper folders that are not declared and that no report shows."""
        return with_log(self.lake, [each for each in self._newest if each not in self.tables])

    @cached_property
    def _inside(self) -> set[str]:
        return tables_inside(self.lake, self._spread_folders)

    def _folders(self) -> set[str]:
        return upper_folders(self.lake, self.landed)

    def _is_old(self) -> bool:
        age_ms = now_ms() - (self._current_ms or 0)
        return age_ms >= max(_ASK_AGAIN_MS, _ASK_AGAIN_MS_PER_TABLE * len(self._newest))

    def _ask_again(self) -> None:
        asked_ms = now_ms()
        with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
            moved = pool.map(self.lake.has_moved_on, self._newest, self._newest.values())
            changed = {
                table for table, has_moved in zip(self._newest, moved, strict=True) if has_moved
            }
        self._read(changed | self._unread.keys() | (self._folders() - self._newest.keys()))
        self._current_ms = asked_ms

    def _read_tables(self, tables: Set[str]) -> None:
        new = tables - self.tables
        self.tables |= new
        self._read(new)

    def _read(self, tables: Iterable[str]) -> None:
        for table in sorted(tables):
            self._kept.pop(table, None)
            try:
                kept_count = sum(each.file_count for each in self._kept.values())
                if table in self._wanted and kept_count < _KEPT_FILES:
                    self.log(table)
                else:
                    self._learn(table, read_log(self.lake, table, place=self._place))
            except LakehouseError as error:
                unread = salvage_log(self.lake, table, error, place=self._place)
                self._unread[table] = unread
                self.unplaced |= unread.unplaced
            else:
                self._note_if_missing(table)

    def _note_if_missing(self, table: str) -> None:
        address = self.lake.elsewhere.get(table)
        if address is None or table in self.there or may_never_have_existed(self.lake, table):
            return
        self._unread[table] = UnreadLog(
            reason=f"there is no Delta table at {address}. Either make its disk or folder "
            "available again, or use a declaration (or a call of maintain) without this table; "
            f"{FOUND}/{table}/ names its last place"
        )

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
            names = chain(table_files.live, table_files.stones)
            folders = {name.partition("/")[0] for name in names if "/" in name}
            if len(folders) >= _SPREAD_FOLDERS:
                self._spread_folders |= {f"{table}/{folder}" for folder in folders}
        self.transactions[table] = known.facts.snapshot.transactions
        borrowed = table_files.borrowed(self.tables)
        if not (borrowed <= self.lent and table_files.unplaced <= self.unplaced):
            self.lent |= borrowed
            self.unplaced |= table_files.unplaced

    def _refuse_unread(self, table: str) -> None:
        for name, unread in self._unread.items():
            if name != table and unread.may_borrow_from(table, self.tables):
                raise Refused(
                    f"vacuum of {table}: {name} cannot be read, and may borrow files of {table} "
                    f"that look like orphans: {unread.reason}. This vacuum goes on once {name} can "
                    "be read again, or lies outside of the lake"
                )
