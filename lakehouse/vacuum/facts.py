"""The facts for vacuums: about the lake, which several vacuums share, and about one table.

A table borrows a file if it reads the file from another table's folder, as shallow clones do.

1. The newest inventory of each configuration is read in one pass. It shows which tables exist,
   and which files each table has. If recent inventories show all declared tables, only the
   lake's upper folders are searched for further tables; otherwise the whole lake is listed.
2. Each table's log is read once. It is needed for the vacuum of that table, and it shows which
   files the table borrows.
3. From then on, up to two HEAD requests per table find newer commits, and logs that were recreated
   or reset to an older state. A listing of the upper folders finds new tables. Only logs that are
   new, have changed, or could not be read are read again.

**Safety properties**
- A table at most two folders deep is found even if it is not declared, no inventory shows it, and
  its first commits are gone (`test_faults.py`, `test_adopted.py`).
- A file that another table borrowed counts as borrowed until the end of the run.
- Nothing is deleted if the lake contains files at the key of a table outside the lake. These files
  may be a shallow clone, whose log this program would never read (`test_adopted.py`).
- A table whose log cannot be read blocks the vacuums of all tables in whose folders the readable
  part of the log names files. If neither a checkpoint nor the first commit can be read, the table
  may borrow any file and blocks all other vacuums (`test_unread.py`).
- A missing table outside the lake also blocks all other vacuums if an earlier vacuum found it, or
  if its storage is empty, because its disk may not be mounted (`test_adopted.py`).
- All tables are checked for changes before the first deletion. The check is repeated with a last
  check of a vacuum if it is at least ten seconds old (with more than a hundred tables: a tenth of a
  second per table). So the checks send, on average, at most twenty HEAD requests per second,
  regardless of the number of tables (`test_lake.py`, `test_meanwhile.py`).
- If a version in `Vacuum.keep_versions` cannot be read, the vacuum is refused, because the files to
  keep are unknown (`test_kept_versions.py`).
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from urllib.parse import unquote

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, LakehouseError, Refused
from lakehouse.base.frozen import frozen
from lakehouse.base.operation import VacuumMode, VacuumRecord
from lakehouse.base.paths import is_absolute, vector_path
from lakehouse.base.stored_objects import MAX_AGE_HOURS
from lakehouse.base.text import first_names, utc_text
from lakehouse.compact.verify import expected
from lakehouse.declare.table import Table
from lakehouse.delta.commits import is_news
from lakehouse.delta.log import newest_first
from lakehouse.delta.log.actions import Actions, parse_actions, read_checkpoint
from lakehouse.delta.log.log_segment import LogChanged, LogContradiction, find_segment, log_folder
from lakehouse.delta.snapshot import Snapshot, TableFacts
from lakehouse.lake.lake import Lake, PathResolver, landing_prefixes
from lakehouse.lake.state_tables import put_records, read_records, vacuum_records
from lakehouse.materialize.plan import consume_app_id
from lakehouse.store import Store, StoredFile, at_once
from lakehouse.vacuum.inventory.plan import (
    OtherUses,
    Owners,
    TableFiles,
    fold_table_files,
    table_roots,
)
from lakehouse.vacuum.inventory.run import InventoryRows, inventories_of, inventory_table
from lakehouse.vacuum.plan.candidates import (
    VacuumFacts,
    objects_by_log,
    retention_in_force,
)
from lakehouse.vacuum.plan.vacuum import VacuumPlan, choose_mode, plan_vacuum


@frozen
class KnownLog:
    """The facts in a table's log, and the table's files according to the log."""

    facts: TableFacts
    table_files: TableFiles


@frozen
class UnreadLog:
    """A log that cannot be read, and the reason.

    `folders` are the lake's folders that contain files named in the readable part of the log. If
    the readable part does not suffice, `folders` is `None`, and the table may read any file.
    `unplaced` are the base names of files whose paths may or may not lead into the lake.
    """

    reason: str
    folders: Set[str] | None = None
    unplaced: Set[str] = frozenset()

    def may_borrow_from(self, table: str, tables: Iterable[str]) -> bool:
        """Whether the table with this log may read files of `table`, one of the lake's `tables`."""
        if self.folders is None:
            return True
        owners = Owners({table, *tables})
        return any(owners.table_of(folder) == table for folder in self.folders)


def salvage_log(
    lake: Lake, table: str, error: LakehouseError, *, resolve: PathResolver
) -> UnreadLog:
    """Finds the folders of a table's files in the readable part of its log.

    The unreadable part is assumed to name files in the same folders.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, LogContradiction):
        cause = cause.__cause__
    try:
        paths = readable_paths(lake.store, table, trusts_checkpoints=cause is None)
    except (LakehouseError, FileNotFoundError):
        paths = set[str]()
    if not paths:
        return UnreadLog(reason=str(error))
    folders = set[str]()
    unplaced = set[str]()
    uri = lake.table_uri(table)
    for path in paths:
        decoded_path = unquote(path)
        address = decoded_path if is_absolute(path) else f"{uri}/{decoded_path}"
        name = resolve(address)
        if name is None:
            unplaced.add(decoded_path.rpartition("/")[2])
        else:
            folders.add(f"{name.rpartition('/')[0]}/")
    return UnreadLog(reason=str(error), folders=folders, unplaced=unplaced)


def has_newer_version(lake: Lake, facts: TableFacts) -> bool:
    """Whether the log has a newer version than `facts`.

    Raises:
        Broken: the newest commit in `facts` is gone or was replaced. Then the log was reset to an
            older state, and it is unknown which files the table needs.
    """
    table = facts.snapshot.table
    newest = facts.newest
    if change := lake.changed(table, newest):
        raise Broken(
            f"vacuum of {table}: the commit of version {facts.snapshot.version} has changed since "
            f"it was read: {newest.name} {change}. The log may have been reset to an older state, "
            "so no more files were deleted. Check the log, then run the vacuum again"
        )
    return lake.has_version(table, facts.snapshot.version + 1)


_FIRST_COMMIT = f"{0:020}.json"
# A truncated string has no closing quote, so it does not match.
_PATH = re.compile(r'"(path|pathOrInlineDv)"\s*:\s*("(?:[^"\\]|\\.)*")')


def readable_paths(store: Store, key: str, *, trusts_checkpoints: bool) -> Set[str]:
    """The paths in the readable part of a log; empty if it may lack files of other tables.

    These are the paths of data files and the absolute paths of deletion vectors, as the log spells
    them. A shallow clone names the files of other tables in its first commit, and every checkpoint
    repeats these names. Therefore, the readable part is sufficient if it names any file and
    includes the first commit or a complete checkpoint. Use `trusts_checkpoints=False` if the log
    contradicts itself: then only the first commit is sufficient.
    """
    paths = set[str]()
    is_sufficient = False
    checkpoints = defaultdict[str, list[StoredFile]](list)
    for file in store.list(log_folder(key)):
        name = file.name.removeprefix(log_folder(key))
        if ".checkpoint" in name:
            checkpoints[name[:20]].append(file)
        if name.endswith((".json", ".crc")):
            data = store.read(file.name)
            paths.update(_paths_in(data))
            if name == _FIRST_COMMIT:
                with suppress(Broken):
                    parse_actions(data, file.name, Actions())
                    is_sufficient = True
    for files in checkpoints.values():
        with suppress(LogChanged, LogContradiction, FileNotFoundError, Refused):
            segment = find_segment(files, key)
            checkpoint = Actions() if segment is None else read_checkpoint(store, segment)
            for each in (*checkpoint.adds, *checkpoint.removes):
                paths.add(each.path)
                if vector := each.deletion_vector and vector_path(each.deletion_vector):
                    paths.add(vector)
            is_sufficient |= trusts_checkpoints and bool(checkpoint.adds)
    return paths if is_sufficient else set()


def _paths_in(data: bytes) -> Iterator[str]:
    for kind, quoted in _PATH.findall(data.decode("utf-8", "replace")):
        try:
            path: str = json.loads(quoted, strict=False)
        except ValueError:
            continue
        if kind == "path" or is_absolute(path):
            yield path


# The kind of the records of tables outside the lake: their keys are the addresses at which a vacuum
# found the table.
_FOUND = "found_at"
_NO_TABLES = frozenset({"", ".", "..", "_lakehouse", "_delta_log"})


# The age at which a check for changes is repeated (see the last safety property).
_ASK_AGAIN_MS = 10_000
_ASK_AGAIN_MS_PER_TABLE = 100
# The logs in memory name about this many files in total, at about 1.2 KB per file. All other logs
# are read again when their table is vacuumed.
_KEPT_FILES = 200_000
# If a table outside the lake has this many folders, they are taken for partitions, and are not
# searched for nested tables.
_SPREAD_FOLDERS = 1_000


class LakeFacts:
    """The facts about `lake` that several vacuums share.

    - `declared`: the declared tables.
    - `tables`: the folders that look like tables.
    - `uses`: the files that any table borrows, and the prefixes that declared tables load from.
    - `transactions`: the transaction identifiers in each table's log.
    """

    def __init__(self, lake: Lake, declared: Sequence[Table]) -> None:
        self.lake = lake
        self.declared = declared
        self.uses = OtherUses(landed=landing_prefixes(lake, declared))
        self.tables = set[str]()
        self.transactions: dict[str, Mapping[str, int]] = {}
        self._resolve = PathResolver(lake)
        self._kept: dict[str, KnownLog] = {}
        self._newest: dict[str, StoredFile | None] = {}
        self._unread: dict[str, UnreadLog] = {}
        self._current_ms: int | None = None
        self._was_asked = False

    def log(self, table: str) -> KnownLog | None:
        """A table's log; `None` if there is no table. Read if not in memory, or if changed.

        A log that was in memory is dropped from there. What the table borrows is kept.
        """
        known = self._kept.pop(table, None)
        if known is None or self.lake.has_moved_on(table, known.facts.newest):
            known = self._read_log(table)
        return known

    def inventory_of(self, table: Table) -> tuple[InventoryRows | None, str]:
        """The newest inventory that shows a table, if any, and a problem, if any."""
        if table.key in self.lake.elsewhere:
            return None, "the table is outside the lake, which the lake's inventories do not cover"
        inventories, problem = self._inventories
        shown = next((rows for rows in inventories if table.key in rows.tables), None)
        if inventories and shown is None and not problem:
            problem = (
                f"inventory {inventories[0].inventory.name} shows no file of {table.key}: it is "
                "older than the table, or covers another prefix"
            )
        return shown, problem

    def read(self, table: str, *, before_deletion: bool = False) -> None:
        """Reads which files each table of the lake borrows, before a plan and before a deletion.

        Known logs are checked for changes before the first deletion. After that, only if it is due.

        Raises:
            Refused: another table's log cannot be read, and that table may borrow files of `table`;
                or the lake has files at the key of a table outside the lake.
        """
        if self._current_ms is None:
            self._current_ms = now_ms()
            # An upper folder without a log may become a table, so it is checked later, too.
            upper = self._upper_folders()
            self._newest = dict.fromkeys(upper) | self._newest
            shown = (rows.tables for rows in self._inventories[0])
            self._read_tables({each.key for each in self.declared}.union(*shown))
            self._read_tables(self._with_log([each for each in upper if each not in self.tables]))
            self._read_tables(self._inside())
        elif self._is_old() or (before_deletion and not self._was_asked):
            self._check_for_changes()
            self._was_asked |= before_deletion
        if not self._inventories_suffice(table):
            self._read_tables(self._listed)
        self._refuse_unread(table)

    def remember_found(self) -> None:
        """Records which tables outside the lake exist, so that later runs notice missing tables."""
        elsewhere = self.lake.elsewhere
        found = {(table, elsewhere[table]) for table in elsewhere if self._newest.get(table)}
        if found:
            found -= read_records(self.lake, _FOUND).keys()
        put_records(self.lake, _FOUND, dict.fromkeys(sorted(found), True))

    @cached_property
    def _inventories(self) -> tuple[list[InventoryRows], str]:
        """The newest inventory of each configuration, newest first, and the first problem.

        One configuration may not suffice, because its filter may exclude a part of the lake.
        """
        inventories = list[InventoryRows]()
        problem = ""
        try:
            known = self.log(inventory_table(self.lake))
            for inventory in [] if known is None else inventories_of(known.facts):
                inventories.append(InventoryRows(self.lake, inventory))
        except (Refused, Broken) as error:
            problem = str(error)
        return inventories, problem

    def _inventories_suffice(self, table: str) -> bool:
        """Whether recent inventories show all declared tables, so that none must be searched.

        Old inventories do not count, because they lack clones that were created later.
        """
        inventories, problem = self._inventories
        recent = [
            rows for rows in inventories if rows.inventory.age_hours(now_ms()) <= MAX_AGE_HOURS
        ]
        shown = set[str]().union(*(rows.tables for rows in recent))
        required = {table, *(each.key for each in self.declared)} - self.lake.elsewhere.keys()
        return not problem and bool(recent) and required <= shown

    @cached_property
    def _listed(self) -> set[str]:
        """The tables in the lake, found by listing all of its files."""
        prefix = self.lake.store.prefix
        return table_roots(each.key.removeprefix(prefix) for each in self.lake.store.walk(""))

    def _inside(self) -> set[str]:
        """The tables nested up to two folders deep in tables outside the lake.

        Neither inventories nor listings of the lake show these tables.
        """
        folders = list[str]()
        for table in self.lake.elsewhere:
            upper = self._folders_in(table)
            folders += upper
            if len(upper) < _SPREAD_FOLDERS:
                folders += chain.from_iterable(at_once(self._folders_in, upper))
        return self._with_log(folders)

    def _folders_in(self, folder: str) -> list[str]:
        """The folders directly below `folder` that may be tables. Partitions are omitted."""
        names = self.lake.store.folders(folder)
        return [f"{folder}/{name}" for name in names if name not in _NO_TABLES and "=" not in name]

    def _with_log(self, folders: Sequence[str]) -> set[str]:
        """The folders that contain a log.

        Log folders are listed, because an old log may lack both its first commit and
        `_last_checkpoint`.
        """
        logs = at_once(self.lake.store.list, [f"{each}/_delta_log" for each in folders])
        return {folder for folder, files in zip(folders, logs, strict=True) if files}

    def _upper_folders(self) -> set[str]:
        """The lake's folders up to two levels deep, for example `silver` and `silver/orders`.

        Each of these folders may be a table. Logs, partitions, and landing prefixes that consist of
        a single folder are omitted.

        Raises:
            Refused: the lake's root is a table, or the lake has files at the key of a table outside
                the lake.
        """
        lake = self.lake
        root = lake.settings.root
        names = lake.store.folders("")
        if "_delta_log" in names:
            raise Refused(
                f"vacuum: the lake's root {root} is itself a Delta table, which may read files of "
                "every table of the lake. Move the table at the root into a subfolder"
            )
        skipped = _NO_TABLES | {prefix.rstrip("/") for prefix in self.uses.landed}
        folders = {name for name in names if name not in skipped}
        # A top-level folder may be a table itself.
        folders.update(*map(self._folders_in, folders))
        for key in sorted(folders & lake.elsewhere.keys()):
            if lake.holds_files(key):
                raise Refused(
                    f"vacuum: {key} is the table at {lake.elsewhere[key]}, but there are also "
                    f"files at {root}/{key}. These files may be another table, whose log would not "
                    f"be read. Use another key for {lake.elsewhere[key]}"
                )
        return folders

    def _is_old(self) -> bool:
        age_ms = now_ms() - (self._current_ms or 0)
        return age_ms >= max(_ASK_AGAIN_MS, _ASK_AGAIN_MS_PER_TABLE * len(self._newest))

    def _check_for_changes(self) -> None:
        checked_ms = now_ms()
        results = at_once(self.lake.has_moved_on, self._newest, self._newest.values())
        changed = {table for table, is_newer in zip(self._newest, results, strict=True) if is_newer}
        new = self._upper_folders() - self._newest.keys()
        self._read(changed | self._unread.keys() | new)
        self._current_ms = checked_ms

    def _read_tables(self, tables: Set[str]) -> None:
        new = tables - self.tables
        self.tables |= new
        self._read(new)

    def _read(self, tables: Iterable[str]) -> None:
        for table in sorted(tables):
            self._kept.pop(table, None)
            try:
                known = self._read_log(table)
            except LakehouseError as error:
                unread = salvage_log(self.lake, table, error, resolve=self._resolve)
                self._unread[table] = unread
                self.uses = self.uses.with_more(unplaced=unread.unplaced)
                continue
            self._note_if_missing(table)
            kept = [each.table_files for each in self._kept.values()]
            kept_count = sum(len(files.live) + len(files.removed) for files in kept)
            if known is not None and kept_count < _KEPT_FILES:
                self._kept[table] = known

    def _note_if_missing(self, table: str) -> None:
        """Notes a missing table outside the lake, unless it may never have existed.

        It may if no vacuum has ever found it at any address, and its storage is available, so it is
        not just an unmounted disk.
        """
        address = self.lake.elsewhere.get(table)
        if address is None or self._newest[table] is not None:
            return
        addresses = [place for _, place in read_records(self.lake, _FOUND, table)]
        if not addresses and self.lake.storage_is_there(table):
            return
        self._unread[table] = UnreadLog(
            reason=f"there is no Delta table at {address}. Either make its disk or folder "
            "available again, or remove the table from the declarations (or from the call of "
            f"maintain). Earlier vacuums found the table at: {first_names(addresses) or 'no place'}"
        )

    def _read_log(self, table: str) -> KnownLog | None:
        """Reads a table's log, and notes what the table borrows; `None` if there is no table."""
        facts = self.lake.facts(table)
        self._unread.pop(table, None)
        if facts is None:
            self._newest[table] = None
            return None
        files = fold_table_files(facts, resolve=self._resolve, now_ms=now_ms())
        self._newest[table] = facts.newest
        self.tables.add(table)
        self.transactions[table] = facts.snapshot.transactions
        borrowed = files.borrowed(self.tables)
        self.uses = self.uses.with_more(borrowed=borrowed, unplaced=files.unplaced)
        return KnownLog(facts=facts, table_files=files)

    def _refuse_unread(self, table: str) -> None:
        for name, unread in self._unread.items():
            if name != table and unread.may_borrow_from(table, self.tables):
                way_out = "move it out of the lake"
                if name in self.lake.elsewhere:
                    way_out = (
                        "remove it from the declarations (or from the call of maintain), if it "
                        f"reads no files of {table}"
                    )
                raise Refused(
                    f"vacuum of {table}: {name} cannot be read: {unread.reason}. {name} may read "
                    f"files of {table} that look like orphans, so no more files were deleted. To "
                    f"continue, either repair {name}, or {way_out}"
                )


# A tombstone's time may be earlier than the time of its commit by the duration of the transaction.
# No transaction is assumed to take longer than a day.
_LONGEST_TRANSACTION_MS = 86_400_000


def plan(
    lake_facts: LakeFacts, table: Table, *, mode: VacuumMode | None = None
) -> VacuumPlan | None:
    """The plan of a vacuum in `mode`, or in the cheapest valid mode; `None` if there is no table.

    Planning does not use Spark. A vacuum may delete fewer files than its plan, but no other files.

    Raises:
        Refused: the table may not be vacuumed now, or not in this mode; otherwise as `gather`.
        Broken: a file that the newest version needs is not in storage; otherwise as `gather`.
    """
    facts = gather(lake_facts, table)
    if facts is None:
        return None
    began_ms = now_ms()
    quotes = choose_mode(facts, prices=table.prices, now_ms=began_ms, requested=mode)
    mode = quotes[0].mode
    store = lake_facts.lake.store
    if mode == "LITE":
        objects = objects_by_log(facts)
    elif mode == "INVENTORY":
        rows, _ = lake_facts.inventory_of(table)
        assert rows is not None  # the mode is not valid without an inventory
        objects = rows.below(f"{store.prefix}{table.key}/")
    else:
        objects = store.walk(table.key)
    return plan_vacuum(facts, table, objects, quotes=quotes, now_ms=began_ms)


def gather(lake_facts: LakeFacts, table: Table) -> VacuumFacts | None:
    """Reads the current facts about a table; `None` if there is no table yet.

    Raises:
        Refused: another table of the lake cannot be read and may read files of this table, or a
            version to keep cannot be read.
        Broken: the table's log was replaced by an older copy.
    """
    log = lake_facts.log(table.key)
    if log is None:
        return None
    lake_facts.read(table.key)
    lake = lake_facts.lake
    records = vacuum_records(lake, table.key)
    if records:
        _refuse_older_copy(lake, log.facts, records[-1])
    rows, problem = lake_facts.inventory_of(table)
    retention_ms = retention_in_force(table.vacuum, log.facts.snapshot.properties)
    needed_since_ms, needed_because = _needed_by_readers(lake_facts, table, log.facts)
    return VacuumFacts(
        table_files=replace(log.table_files, retention_ms=retention_ms),
        log=log.facts,
        all_commits=partial(newest_first, lake.store, over_gaps=True),
        other_uses=lake_facts.uses,
        inventory=rows.inventory if rows else None,
        inventory_problem=problem,
        records=records,
        needed_since_ms=needed_since_ms,
        needed_because=needed_because,
        on_s3=lake.on_s3(table.key),
        tables=frozenset(lake_facts.tables),
        lake_prefix=lake.store.prefix,
        adopted=table.adopted is not None,
        log_only=table.adopted is not None and table.adopted.orphans == "keep",
        kept_for_versions=kept_for_versions(lake, table, log.facts.snapshot),
    )


def kept_for_versions(lake: Lake, table: Table, snapshot: Snapshot) -> Set[str]:
    """The data files and deletion vectors that the versions in `Vacuum.keep_versions` need.

    Names are relative to the table, whose newest version is `snapshot`. A version that does not
    exist yet is omitted.

    Raises:
        Refused: a version cannot be read, or reads files outside the table's folder.
    """
    kept = set[str]()
    for version in sorted({*table.vacuum.keep_versions}):
        if version > snapshot.version:
            continue
        try:
            facts = lake.facts(snapshot.table, version=version)
            if facts is None:
                raise Refused("the version's log files are gone")
            files = fold_table_files(facts, resolve=PathResolver(lake), now_ms=now_ms())
            if elsewhere := [*files.elsewhere, *files.outside]:
                raise Refused(
                    "the version reads files outside the table's folder, for example "
                    f"{min(elsewhere)}, which a vacuum of another table may delete"
                )
        except (Refused, Broken) as error:
            raise Refused(
                f"vacuum of {snapshot.table}: version {version} is named in Vacuum.keep_versions, "
                f"but cannot be kept: {error}. Either restore its files, or remove {version} from "
                "Vacuum.keep_versions"
            ) from error
        kept.update(files.live)
    return kept


def _refuse_older_copy(lake: Lake, facts: TableFacts, last: VacuumRecord) -> None:
    """Raises `Broken` if the log was replaced by an older copy since the last vacuum.

    An older copy does not name the files of newer versions, so these files would look like orphans.
    """
    snapshot = facts.snapshot
    if last.table_id != snapshot.table_id:
        return
    is_replaced = facts.history.has_replaced(last.version, last.committed_ms)
    if is_replaced or _ends_before(lake, facts, last.version):
        raise Broken(
            f"vacuum of {snapshot.table}: the log was replaced by an older copy. The last vacuum "
            f"saw version {last.version}; the log, now at version {snapshot.version}, has no such "
            "version, or another one. Restore the newest log. If it is lost for good, the table "
            "can still be read and written, but not vacuumed, because files of the lost versions "
            "look like orphans"
        )


def _ends_before(lake: Lake, facts: TableFacts, version: int) -> bool:
    """Whether the log ended before `version` when it was read, and still does."""
    return version > facts.snapshot.version and not has_newer_version(lake, facts)


def _needed_by_readers(
    lake_facts: LakeFacts, table: Table, facts: TableFacts
) -> tuple[int | None, str]:
    """The time since which removed files are still needed (`None`: none is needed), and the reason.

    A reader is a declared table that has this table as its first input and reads its changes. It
    needs the files of each commit until it has read the commit. If the log lacks some unread
    commits, the reader has to read the whole table anyway and needs no removed file. If all unread
    commits only rewrite rows, as compactions do, it needs no removed file, either. A compaction
    needs the files that it removed until its result is verified.

    Raises:
        Broken: a reader has read a version that the log no longer has.
    """
    lake = lake_facts.lake
    needed_since_ms: dict[str, int] = {}
    unverified = expected(lake, table.key)
    if unverified is not None:
        commits = lake.history_since(facts, unverified.version)
        rewrite = commits.marked(unverified.mark)
        if rewrite is not None:
            needed_since_ms["the verification of a compaction"] = rewrite.committed_ms
    for reader in lake_facts.declared:
        reads_changes = bool(reader.inputs) and reader.inputs[0].key == table.key
        if not reads_changes or reader.is_overwrite:
            continue
        transactions = lake_facts.transactions.get(reader.key, {})
        consumed = transactions.get(consume_app_id(facts.snapshot))
        if consumed is None:
            continue
        if _ends_before(lake, facts, consumed):
            raise Broken(
                f"vacuum of {table.key}: the log was replaced by an older copy. {reader.key} has "
                f"read version {consumed}, which is no longer in the log. Either restore the "
                "newest log; or, to continue with the present rows, declare "
                f"{reader.key} under a new key"
            )
        commits = lake.history_since(facts, consumed)
        unread = commits.between(consumed, facts.snapshot.version)
        if unread and any(map(is_news, unread)):
            needed_since_ms[reader.key] = unread[0].committed_ms
    if not needed_since_ms:
        return None, ""
    since_ms = min(needed_since_ms.values()) - _LONGEST_TRANSACTION_MS
    readers = ", ".join(sorted(needed_since_ms))
    return since_ms, (
        f"files removed after {utc_text(since_ms)} are kept for readers that have not read them "
        f"yet: {readers}"
    )
