"""The facts before the vacuum of one table, and its plan."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Overwrite, Table
from lakehouse.core.declaration.vacuum_policy import type_of_mode
from lakehouse.core.delta.commits import Commits, is_news
from lakehouse.core.delta.protocol import retention_ms_of
from lakehouse.core.errors import Broken
from lakehouse.core.ingest.increments import consume_app_id
from lakehouse.core.inventory.objects import StoredObject
from lakehouse.core.reasons import Reason
from lakehouse.core.vacuum.candidates import checksum_name
from lakehouse.core.vacuum.facts import VacuumFacts, VacuumRecord, objects_by_log
from lakehouse.core.vacuum.mode import choose_mode
from lakehouse.core.vacuum.plan import VacuumPlan, plan_vacuum
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.unverified_commits import expected
from lakehouse.engine.delta_log import history_since
from lakehouse.engine.inventory.stored_reports import SETTLED_MS, ReportRows, settled_ms
from lakehouse.engine.journal.vacuums import vacuum_records
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.vacuum.lake_facts import LakeFacts
from lakehouse.engine.vacuum.log_state import KnownLog, OlderCommits, has_newer_version

# A commit comes after its files and the times of its removals, by as long as its transaction ran.
_BEFORE_COMMIT_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReading:
    """The facts of one table, and the report that they name."""

    facts: VacuumFacts
    rows: ReportRows | None


def plan(
    run: LakeFacts,
    table: Table,
    *,
    mode: type_of_mode | None = None,
    gathered: VacuumReading | None = None,
) -> VacuumPlan | None:
    """The plan of a vacuum of `table` now, by its cheapest valid mode or the one that is wanted; `None` where there is no table.

    No Spark is asked; Delta's own answer may spare some of it.

    Raises:
        Refused: the table may not be vacuumed now, or not by this mode; a table of the lake cannot be read.
        Broken: a file that the newest version reads is not in storage.
    """
    known = gathered or gather(run, table)
    if known is None:
        return None
    began_ms = now_ms()
    chosen, quotes = choose_mode(known.facts, prices=table.prices, now_ms=began_ms, wanted=mode)
    settled = (
        settled_ms(known.rows.report)
        if chosen == "INVENTORY" and known.rows
        else began_ms - SETTLED_MS
    )
    return plan_vacuum(
        known.facts,
        table.vacuum,
        _objects(run.lake, known, chosen),
        mode=chosen,
        quotes=quotes,
        now_ms=began_ms,
        settled_ms=settled,
        prices=table.prices,
    )


def gather(run: LakeFacts, table: Table) -> VacuumReading | None:
    """The facts of a table now; `None` where there is none yet.

    Raises:
        Refused: another table of the lake cannot be read, so that what it borrows is unknown.
        Broken: an older copy was put in the place of the table's log.
    """
    if run.log(table.key) is None:
        return None
    run.read(table)
    log, store = run.take(table.key), run.lake.store
    if log is None:
        return None
    records = vacuum_records(store, table.key)
    if records:
        _refuse_older_copy(run.lake, log, records[-1])
    rows, problem = run.report_of(table)
    # A vacuum sets what is declared before it begins; a plan that is only looked at goes by it, too.
    properties = {
        **log.facts.snapshot.properties,
        **table.vacuum.properties_beside(log.facts.snapshot.properties),
    }
    held_ms, held = _held(run, table, log)
    facts = VacuumFacts(
        table_files=replace(log.table_files, retention_ms=retention_ms_of(properties)),
        log=log.facts,
        older_commits=OlderCommits(store).below,
        lent=run.lent,
        unplaced=run.unplaced,
        landed=run.landed,
        strays=_strays(run, table.key),
        report=rows.report if rows else None,
        report_problem=problem,
        records=records,
        held_ms=held_ms,
        held=held,
        on_s3=run.lake.on_s3(table.key),
        tables=frozenset(run.tables),
        lake_prefix=store.prefix,
        versioned=run.versioned_of(table.key),
        adopted=isinstance(table.write, Adopted),
        log_only=isinstance(table.write, Adopted) and table.write.orphans == "keep",
    )
    return VacuumReading(facts=facts, rows=rows)


def _refuse_older_copy(lake: Lake, log: KnownLog, last: VacuumRecord) -> None:
    """Broken, where the last vacuum saw another state of this table than its log tells of: what that needs would look like orphans."""
    snapshot = log.facts.snapshot
    if last.table_id != snapshot.table_id:
        return
    if _ends_before(lake, log, last.version) or log.facts.history.has_replaced(
        last.version, last.committed_ms
    ):
        raise Broken(
            f"vacuum of {snapshot.table}: version {last.version}, which the last vacuum saw, is not in its log, which is at version "
            f"{snapshot.version}: an older copy was put in its place. Put the newest log back. If it is lost for good, the table can be read "
            "and written as it is, but not vacuumed: the files of the lost versions look like orphans"
        )


def _ends_before(lake: Lake, log: KnownLog, version: int) -> bool:
    """Whether the log ends before a version that somebody has seen in it, and not only since it was read."""
    return version > log.facts.snapshot.version and not has_newer_version(lake, log.facts)


def _strays(run: LakeFacts, table: str) -> dict[str, str]:
    """Folders that a key below `_delta_log` makes look like tables, though it is neither commit nor checkpoint, with such a key."""
    folders = (name for name in run.tables - run.there if name.startswith(f"{table}/"))
    logs = {folder: run.lake.store.list(f"{folder}/_delta_log") for folder in folders}
    return {
        folder: files[0].name if files else f"{folder}/_delta_log/"
        for folder, files in logs.items()
    }


def _objects(lake: Lake, known: VacuumReading, mode: type_of_mode) -> Iterable[StoredObject]:
    store, table = lake.store, known.facts.table_files.table
    match mode:
        case "FULL":
            return store.walk(table)
        case "INVENTORY":
            assert known.rows is not None  # without one the mode is not valid
            return known.rows.below(f"{store.prefix}{table}/")
        case "LITE":
            by_log = objects_by_log(known.facts, bucket=store.bucket)
            return (
                by_log
                if known.facts.on_s3
                else _on_disk(lake, table, by_log, log_only=known.facts.log_only)
            )


def own_folders(lake: Lake, table: str) -> Callable[[str], bool]:
    """Tells whether a file of a table, by its name there, lies in the table's own folder, and not behind a link that leads elsewhere."""
    place, uri = PathResolver(lake), lake.table_uri(table)

    @cache
    def is_own(folder: str) -> bool:
        return not folder or place(f"{uri}/{folder}") == f"{place(uri)}/{folder}"

    return lambda name: is_own(name.rpartition("/")[0])


def _on_disk(
    lake: Lake, table: str, objects: Iterable[StoredObject], *, log_only: bool
) -> Iterator[StoredObject]:
    """The objects that are there, with what the disk knows of them, which costs nothing; Hadoop's checksums among them.

    What lies behind a link is left out, as a listing leaves it out. Where the log alone decides (`log_only`), so is what was written after
    the removal: the log never told of it.
    """
    is_own, above = own_folders(lake, table), f"{lake.store.prefix}{table}/"
    for each in objects:
        if "\0" in each.key or not is_own(
            each.key.removeprefix(above)
        ):  # no file of a disk has such a name
            continue
        file = lake.store.stat(each.key.removeprefix(lake.store.prefix))
        if log_only and file is not None and file.modified_ms > (each.modified_ms or 0):
            continue
        for key in (each.key, checksum_name(each.key)):
            if found := lake.store.stat(key.removeprefix(lake.store.prefix)):
                yield StoredObject(
                    bucket=each.bucket,
                    key=key,
                    size_bytes=found.size_bytes,
                    modified_ms=found.modified_ms,
                )


def _held(run: LakeFacts, table: Table, log: KnownLog) -> tuple[int | None, str]:
    """Since when removed files are still wanted by tables that read this one's changes, and which; `None` if all have read them.

    A compaction that nobody has verified yet wants what it removed, too. Who has to read all of it anyway, since the log no longer tells of
    the changes, wants none of them.

    Raises:
        Broken: one of them has read a version that the log does not have any more.
    """

    def since(version: int | None) -> Commits:
        """The commits after a version, however many there are; those that the facts hold where the version is unknown."""
        return (
            log.facts.history
            if version is None
            else history_since(run.lake.store, log.facts.history, version)
        )

    waiting: dict[str, int] = {}
    note = expected(run.lake, table.key)
    if note is not None and (made := since(note.version).marked(note.mark)):
        waiting["the verification of a compaction"] = made[0].committed_ms
    for reader in run.declared:
        if (
            reader.inputs
            and reader.inputs[0].key == table.key
            and not isinstance(reader.write, Overwrite)
        ):
            consumed = run.transactions.get(reader.key, {}).get(consume_app_id(log.facts.snapshot))
            if consumed is not None and _ends_before(run.lake, log, consumed):
                raise Broken(
                    f"vacuum of {table.key}: version {consumed}, which {reader.key} has read, is not in its log: an older copy was "
                    f"put in its place. Put the newest log back; or, to go on from the rows that are there now, replace the declaration of "
                    f"{reader.key} by one under a new key"
                )
            commits = (
                None
                if consumed is None
                else since(consumed).between(consumed, log.facts.snapshot.version)
            )
            if commits and any(map(is_news, commits)):
                waiting[reader.key] = commits[0].committed_ms
    if not waiting:
        return None, ""
    since_ms = min(waiting.values()) - _BEFORE_COMMIT_MS
    return since_ms, Reason.HELD_FOR_READERS.explain(
        since=since_ms, readers=", ".join(sorted(waiting))
    ).sentence
