"""Reads the facts about one table, and plans its vacuum.

**Safety property** (tests in `test_kept_versions.py`): if a version in `Vacuum.keep_versions`
cannot be read, the vacuum is refused, because the files to keep are unknown.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

from lakehouse.base.clock import now_ms
from lakehouse.base.errors import Broken, Refused
from lakehouse.base.stored_objects import SETTLED_MS, KnownObjects, StoredObject
from lakehouse.base.text import utc_text
from lakehouse.compact.verify import expected
from lakehouse.declare.policies import VacuumMode
from lakehouse.declare.table import Table
from lakehouse.declare.upkeep_records import VacuumRecord
from lakehouse.declare.write_modes import Adopted, Overwrite
from lakehouse.delta.commits import Commits, is_news
from lakehouse.delta.log import history_since, newest_first
from lakehouse.delta.protocol import retention_ms_of
from lakehouse.delta.snapshot import Snapshot
from lakehouse.lake.lake import Lake, PathResolver
from lakehouse.lake.state_tables import vacuum_records
from lakehouse.materialize.plan import consumed_of
from lakehouse.vacuum.inventory.plan import fold_table_files
from lakehouse.vacuum.lake_facts import KnownLog, LakeFacts, has_newer_version
from lakehouse.vacuum.plan.candidates import VacuumFacts, objects_by_log
from lakehouse.vacuum.plan.vacuum import VacuumPlan, choose_mode, plan_vacuum

# A tombstone's time may be earlier than the time of its commit by the duration of the transaction.
# No transaction is assumed to take longer than a day.
_LONGEST_TRANSACTION_MS = 86_400_000


def plan(
    lake_facts: LakeFacts,
    table: Table,
    *,
    mode: VacuumMode | None = None,
    facts: VacuumFacts | None = None,
) -> VacuumPlan | None:
    """The plan of a vacuum in `mode`, or in the cheapest valid mode; `None` if there is no table.

    Planning does not use Spark. A vacuum may delete fewer files than its plan, but no other files.

    Raises:
        Refused: the table may not be vacuumed now, or not in this mode; otherwise as `gather`.
        Broken: a file that the newest version needs is not in storage; otherwise as `gather`.
    """
    facts = facts or gather(lake_facts, table)
    if facts is None:
        return None
    began_ms = now_ms()
    choice = choose_mode(facts, prices=table.prices, now_ms=began_ms, requested=mode)
    store = lake_facts.lake.store
    # A file that was written before `settled_ms` must be among the objects.
    settled_ms = began_ms - SETTLED_MS
    if choice.mode == "LITE":
        objects = objects_by_log(facts, bucket=store.bucket)
        if not facts.on_s3:
            objects = _on_disk(facts, objects, store.walk(table.key))
    elif choice.mode == "INVENTORY":
        rows, _ = lake_facts.inventory_of(table)
        assert rows is not None  # the mode is not valid without an inventory
        objects = rows.below(f"{store.prefix}{table.key}/")
        settled_ms = rows.inventory.settled_ms
    else:
        objects = store.walk(table.key)
    listing = KnownObjects(objects=objects, settled_ms=settled_ms)
    return plan_vacuum(facts, table, listing, choice=choice, now_ms=began_ms)


def gather(lake_facts: LakeFacts, table: Table) -> VacuumFacts | None:
    """Reads the current facts about a table; `None` if there is no table yet.

    Raises:
        Refused: another table of the lake cannot be read and may read files of this table, or a
            version to keep cannot be read.
        Broken: the table's log was replaced by an older copy.
    """
    if lake_facts.log(table.key) is None:
        return None
    lake_facts.read(table)
    log = lake_facts.take(table.key)
    lake = lake_facts.lake
    if log is None:
        return None
    records = vacuum_records(lake, table.key)
    if records:
        _refuse_older_copy(lake, log, records[-1])
    rows, problem = lake_facts.inventory_of(table)
    # A vacuum sets the declared retention first, so the plan already uses that retention.
    properties = log.facts.snapshot.properties
    properties = {**properties, **table.vacuum.retention_properties(properties)}
    needed_since_ms, needed_because = _needed_by_readers(lake_facts, table, log)
    is_adopted = isinstance(table.write, Adopted)
    return VacuumFacts(
        table_files=replace(log.table_files, retention_ms=retention_ms_of(properties)),
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
        adopted=is_adopted,
        log_only=isinstance(table.write, Adopted) and table.write.orphans == "keep",
        kept_for_versions=kept_for_versions(lake, table, log.facts.snapshot),
    )


def kept_for_versions(lake: Lake, table: Table, snapshot: Snapshot) -> frozenset[str]:
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
            files = fold_table_files(facts.snapshot, resolve=PathResolver(lake))
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
    return frozenset(kept)


def _refuse_older_copy(lake: Lake, log: KnownLog, last: VacuumRecord) -> None:
    """Raises `Broken` if the log was replaced by an older copy since the last vacuum.

    An older copy does not name the files of newer versions, so these files would look like orphans.
    """
    snapshot = log.facts.snapshot
    if last.table_id != snapshot.table_id:
        return
    is_replaced = log.facts.history.has_replaced(last.version, last.committed_ms)
    if is_replaced or _ends_before(lake, log, last.version):
        raise Broken(
            f"vacuum of {snapshot.table}: the log was replaced by an older copy. The last vacuum "
            f"saw version {last.version}; the log, now at version {snapshot.version}, has no such "
            "version, or another one. Restore the newest log. If it is lost for good, the table "
            "can still be read and written, but not vacuumed, because files of the lost versions "
            "look like orphans"
        )


def _ends_before(lake: Lake, log: KnownLog, version: int) -> bool:
    """Whether the log ended before `version` when it was read, and still does."""
    return version > log.facts.snapshot.version and not has_newer_version(lake, log.facts)


def own_folders(lake: Lake, table: str) -> Callable[[str], bool]:
    """Returns a function that checks, for a file's name, whether the file is in the table's folder.

    A file is elsewhere if one of the folders in its name is a symbolic link.
    """
    resolve = PathResolver(lake)
    uri = lake.table_uri(table)

    @cache
    def is_own(folder: str) -> bool:
        return not folder or resolve(f"{uri}/{folder}") == f"{resolve(uri)}/{folder}"

    return lambda name: is_own(name.rpartition("/")[0])


def _on_disk(
    facts: VacuumFacts, removed: Iterable[StoredObject], listed: Iterable[StoredObject]
) -> Iterator[StoredObject]:
    """The removed files that are in a listing.

    If only files that the log names may be deleted (`log_only`), a file that was written after its
    removal is omitted, because it is a new file with a used name.
    """
    removed_ms = {each.key: each.modified_ms or 0 for each in removed}
    for each in listed:
        ms = removed_ms.get(each.key)
        is_new = ms is not None and (each.modified_ms or 0) > ms and facts.log_only
        if ms is not None and not is_new:
            yield each


def _needed_by_readers(
    lake_facts: LakeFacts, table: Table, log: KnownLog
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
        rewrites = _commits_after(lake, log, unverified.version).marked(unverified.mark)
        if rewrites:
            needed_since_ms["the verification of a compaction"] = rewrites[0].committed_ms
    for reader in lake_facts.declared:
        reads_changes = bool(reader.inputs) and reader.inputs[0].key == table.key
        if not reads_changes or isinstance(reader.write, Overwrite):
            continue
        position = consumed_of(log.facts.snapshot, lake_facts.transactions.get(reader.key, {}))
        if position is None:
            continue
        consumed = position.version
        if _ends_before(lake, log, consumed):
            raise Broken(
                f"vacuum of {table.key}: the log was replaced by an older copy. {reader.key} has "
                f"read version {consumed}, which is no longer in the log. Either restore the "
                "newest log; or, to continue with the present rows, declare "
                f"{reader.key} under a new key"
            )
        commits = _commits_after(lake, log, consumed).between(consumed, log.facts.snapshot.version)
        if commits and any(map(is_news, commits)):
            needed_since_ms[reader.key] = commits[0].committed_ms
    if not needed_since_ms:
        return None, ""
    since_ms = min(needed_since_ms.values()) - _LONGEST_TRANSACTION_MS
    readers = ", ".join(sorted(needed_since_ms))
    return since_ms, (
        f"files removed after {utc_text(since_ms)} are kept for readers that have not read them "
        f"yet: {readers}"
    )


def _commits_after(lake: Lake, log: KnownLog, version: int | None) -> Commits:
    """The commits after a version, or the known commits if the version is unknown (`None`)."""
    if version is None:
        return log.facts.history
    return history_since(lake.store, log.facts.history, version)
