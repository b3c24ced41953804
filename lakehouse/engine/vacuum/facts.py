"""What is known before a vacuum: the table's log, those of the lake's other tables, the newest report, and the vacuums before."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakehouse.core.declaration.table import Overwrite, Table
from lakehouse.core.delta.commits import History, is_news
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.errors import Refused
from lakehouse.core.inventory import StoredObject, keep_books, table_roots
from lakehouse.core.reasons import Reason
from lakehouse.core.vacuum import (
    ReportFacts,
    VacuumFacts,
    VacuumPlan,
    checksum_name,
    choose_mode,
    objects_by_log,
    plan_vacuum,
    type_of_mode,
)
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.unverified import expected
from lakehouse.engine.delta_log import TableFacts, history_since
from lakehouse.engine.ingest.write import consume_app_id
from lakehouse.engine.inventory import (
    SETTLED_MS,
    Places,
    Report,
    landing_places,
    newest_report,
    read_keys,
    read_report,
    settled_ms,
    stamps_of,
)
from lakehouse.engine.journal.journal import Journal
from lakehouse.engine.lake import Lake
from lakehouse.engine.vacuum.known import KnownLog, Neighbours, OlderCommits, read_log

# A commit comes after its files and the times of its removals, by as long as its transaction ran.
_BEFORE_COMMIT_MS = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The facts, the report that they name, and the logs that they were read from."""

    facts: VacuumFacts
    report: Report | None
    log: KnownLog
    neighbours: Neighbours


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The newest report that shows a table; why there is none, or which other cannot be used; all tables that any of them shows.

    `is_whole`: those that are young show all that is declared, so that nobody has to list the lake to know its tables.
    """

    report: Report | None
    problem: str
    tables: set[str]
    is_whole: bool


def plan(
    lake: Lake, table: Table, declared: Sequence[Table], *, mode: type_of_mode | None = None, gathered: Gathered | None = None
) -> VacuumPlan | None:
    """What a vacuum of `table` would delete now, by its cheapest valid mode or the one that is wanted; `None` where there is no table.

    No Spark is asked; Delta's own answer may spare some of it. `declared` are the lake's tables.

    Raises:
        Refused: the table may not be vacuumed now, or not by this mode; a table of the lake cannot be read.
        Broken: a file that the newest version reads is not in storage.
    """
    known = gathered or gather(lake, table, declared)
    if known is None:
        return None
    began_ms = now_ms()
    chosen, quotes = choose_mode(known.facts, table.vacuum, prices=table.prices, now_ms=began_ms, wanted=mode)
    settled = settled_ms(known.report) if chosen == "INVENTORY" and known.report else began_ms - SETTLED_MS
    return plan_vacuum(
        known.facts,
        table.vacuum,
        _objects(lake, known, chosen),
        mode=chosen,
        quotes=quotes,
        now_ms=began_ms,
        settled_ms=settled,
        prices=table.prices,
    )


def gather(lake: Lake, table: Table, declared: Sequence[Table]) -> Gathered | None:
    """What is known of a table now; `None` where there is none yet.

    Raises:
        Refused: another table of the lake cannot be read, so that what it borrows is unknown.
    """
    log = read_log(lake, table.key)
    if log is None:
        return None
    own, landed = log.facts, landing_places(lake, declared)
    neighbours = Neighbours(lake, table.key, landed=landed)
    shown = _shown(lake, table, declared)
    tables = shown.tables | {each.key for each in declared} | {table.key}
    if not shown.is_whole:  # storage is asked instead
        tables |= table_roots(each.key.removeprefix(lake.store.prefix) for each in lake.store.walk(""))
    others = neighbours.read(tables)
    # A vacuum sets what is declared before it begins; a plan that is only looked at goes by it, too.
    layout, report = replace(own.layout, properties={**own.layout.properties, **table.vacuum.properties()}), shown.report
    held_ms, held = _held(lake, table, own, declared)
    facts = VacuumFacts(
        books=keep_books(layout, place=Places(lake)),
        history=own.history,
        older_commits=OlderCommits(lake.store).below,
        lent=frozenset(name for books in others.values() for name in books.borrowed),
        unplaced=frozenset(last for books in others.values() for last in books.unplaced),
        landed=landed,
        strays=_strays(lake, (name for name in tables if name.startswith(f"{table.key}/") and name not in others)),
        report=report and ReportFacts(name=report.name, created_ms=report.manifest.created_ms, data_files=len(report.manifest.files)),
        report_problem=shown.problem,
        past=Journal(lake.store).vacuums(table.key),
        held_ms=held_ms,
        held=held,
        features=layout.features,
        properties=layout.properties,
        stone_bytes={name: stone.size_bytes for stone in layout.tombstones if (name := name_in_table(stone.path))},
        on_s3=lake.settings.on_s3,
        tables=frozenset(tables),
        lake_prefix=lake.store.prefix,
        versioned=lake.store.keeps_versions(),
    )
    return Gathered(facts=facts, report=report, log=log, neighbours=neighbours)


def _since(lake: Lake, own: TableFacts, version: int | None) -> History:
    """The commits after a version, however many there are; those that the facts hold where the version is unknown."""
    return own.history if version is None else history_since(lake.store, own.history, version)


def _strays(lake: Lake, folders: Iterable[str]) -> dict[str, str]:
    """Folders that a key below `_delta_log` makes look like tables, though it is neither commit nor checkpoint, with such a key."""
    logs = {folder: lake.store.list(f"{folder}/_delta_log") for folder in folders}
    return {folder: files[0].name if files else f"{folder}/_delta_log/" for folder, files in logs.items()}


def _shown(lake: Lake, table: Table, declared: Sequence[Table]) -> _Shown:
    """What the newest report of each configuration shows: one that is filtered to a prefix knows nothing of the rest of the lake."""
    wanted = {each.key for each in (table, *declared)}
    store, found, problem = lake.store, list[tuple[Report, set[str]]](), ""
    for configuration in dict.fromkeys(name for name, _ in stamps_of(store, store.bucket)):
        try:
            report = newest_report(store, store.bucket, now_ms=now_ms(), configuration=configuration)
            if report is not None:
                keys = (key.removeprefix(store.prefix) for key in read_keys(store, report) if key.startswith(store.prefix))
                found.append((report, table_roots(keys)))
        except Refused as error:
            problem = problem or str(error)
    found.sort(key=lambda each: each[0].manifest.created_ms, reverse=True)
    tables = {name for _, shown in found for name in shown}
    of_it = next((report for report, shown in found if table.key in shown), None)
    if found and of_it is None:
        problem = problem or f"the report {found[0][0].name} shows nothing of {table.key}: is it older than the table, or another prefix's?"
    # A configuration that stopped still shows its tables, but no clone that was made beside them since.
    young = {name for report, shown in found if report.manifest.age_hours(now_ms()) <= table.vacuum.max_report_hours for name in shown}
    return _Shown(report=of_it, problem=problem, tables=tables, is_whole=not problem and wanted <= young)


def _objects(lake: Lake, known: Gathered, mode: type_of_mode) -> Iterable[StoredObject]:
    store, table = lake.store, known.facts.books.table
    match mode:
        case "FULL":
            return store.walk(table)
        case "INVENTORY":
            assert known.report is not None  # without one the mode is not valid
            folder = f"{store.prefix}{table}/"
            return (each for each in read_report(store, known.report) if each.key.startswith(folder))
        case "LITE":
            by_log = objects_by_log(known.facts, bucket=store.bucket)
            return by_log if lake.settings.on_s3 else _on_disk(lake, by_log)


def _on_disk(lake: Lake, objects: Iterable[StoredObject]) -> Iterator[StoredObject]:
    """Those that are there, with what the disk knows of them, which costs nothing; Hadoop's checksums among them."""
    for each in objects:
        if "\0" in each.key:  # no file of a disk has such a name
            continue
        for key in (each.key, checksum_name(each.key)):
            if found := lake.store.stat(key):
                yield StoredObject(bucket=each.bucket, key=key, size_bytes=found.size_bytes, modified_ms=found.modified_ms)


def _held(lake: Lake, table: Table, own: TableFacts, declared: Sequence[Table]) -> tuple[int | None, str]:
    """Since when removed files are still wanted by tables that read this one's changes, and which; `None` if all have read them.

    A compaction that nobody has verified yet wants what it removed, too. Who has to read all of it anyway, since the log no longer tells of
    the changes, wants none of them.
    """
    waiting: dict[str, int] = {}
    note = expected(lake, table.key)
    if note is not None and (made := _since(lake, own, note.version).marked(note.mark)):
        waiting["the verification of a compaction"] = made[0].committed_ms
    for reader in declared:
        if reader.inputs and reader.inputs[0].key == table.key and not isinstance(reader.write, Overwrite):
            facts = lake.facts(reader.key)
            consumed = None if facts is None else facts.layout.transactions.get(consume_app_id(own.layout))
            commits = None if consumed is None else _since(lake, own, consumed).between(consumed, own.layout.version)
            if commits and any(map(is_news, commits)):
                waiting[reader.key] = commits[0].committed_ms
    if not waiting:
        return None, ""
    since = min(waiting.values()) - _BEFORE_COMMIT_MS
    return since, Reason.HELD_FOR_READERS.say(since=since, readers=", ".join(sorted(waiting)))
