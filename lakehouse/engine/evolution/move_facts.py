"""Reads the facts for the move of a table to another key, and plans the move."""

from collections import Counter
from collections.abc import Iterable, Sequence

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.table import Table
from lakehouse.core.delta.protocol import CATALOG_FEATURES
from lakehouse.core.errors import LakehouseError
from lakehouse.core.evolution.move import MovePlan, plan_of_move
from lakehouse.core.evolution.move_facts import MovedFiles, MoveFacts
from lakehouse.core.inventory.table_files import TableFiles, fold_table_files
from lakehouse.core.inventory.table_roots import table_roots
from lakehouse.core.text import first_names
from lakehouse.engine.delta_log import TableFacts
from lakehouse.engine.evolution.moved_files import MovingFile, moving_files
from lakehouse.engine.ingest.derived_inputs import why_archived
from lakehouse.engine.ingest.quarantine.entries import quarantine_key
from lakehouse.engine.journal.moves import move_record
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver, landing_prefixes
from lakehouse.engine.store.interface import MAX_COPY_BYTES
from lakehouse.engine.vacuum.lake_tables import listed_tables

# With this property, readers of other formats can read the table, by absolute paths.
# Source: delta-io/delta v4.4.0, DeltaConfig.scala, UNIVERSAL_FORMAT_ENABLED_FORMATS
_OTHER_FORMATS = "delta.universalFormat.enabledFormats"


def plan_move(lake: Lake, table: Table, declared: Iterable[Table]) -> MovePlan | None:
    """The move of a table from its earlier key; `None` if there is nothing to move.

    `declared` are all declared tables. Nothing is written.
    """
    old_key = table.formerly
    if old_key is None:
        return None
    store = lake.store
    tables = list(declared)
    record = move_record(store, table)
    has_log = bool(store.list(f"{old_key}/_delta_log"))
    if (record is None and not has_log) or (record is not None and record.is_finished):
        return None
    is_copied = record is not None and record.is_copied
    adopted = {each.key for each in tables if isinstance(each.write, Adopted)}
    old_table = None
    problem = ""
    borrowers = ()
    files = list[MovingFile]()
    if old_key not in adopted:
        if not is_copied:
            old_table, problem = _old_table(lake, old_key)
        files = [*moving_files(lake, table, old_key, is_copied=is_copied)]
        if not problem:
            borrowers = _borrowers(lake, table, files)
    facts = MoveFacts(
        old_key=old_key,
        new_key=table.key,
        moved=_by_kind(files),
        record=record,
        problem=problem,
        old_table=old_table,
        new_table=_identity(lake, table.key),
        new_count=_count_at(lake, table.key),
        borrowers=borrowers,
        inner=_inner(files, old_key),
        largest_bytes=max((each.source.size_bytes for each in files), default=0),
        limit_bytes=MAX_COPY_BYTES if lake.settings.on_s3 else None,
        declared={each.key for each in tables},
        adopted=adopted,
        landed=landing_prefixes(lake, tables),
        readers=tuple(sorted(each.key for each in tables if _reads(each, table))),
        on_s3=lake.settings.on_s3,
    )
    return plan_of_move(facts, table.prices)


def _old_table(lake: Lake, old_key: str) -> tuple[tuple[str, int] | None, str]:
    """Table id and version of the old table, and why it cannot be moved (empty if it can).

    Its quarantine moves along, so it must be movable, too. If the log of one of them cannot be
    read, the id and version are `None`.
    """
    identity: tuple[str, int] | None = None
    for key in (old_key, quarantine_key(old_key)):
        try:
            facts = lake.facts(key)
        except LakehouseError as error:
            return None, str(error)
        if facts is None:
            continue
        if key == old_key:
            identity = _identity_of(facts)
        problem = _why_not_movable(lake, key, facts)
        if problem:
            return identity, problem
    problem = "" if identity else f"{old_key}/_delta_log holds no table. Leave formerly= out"
    return identity, problem


def _why_not_movable(lake: Lake, key: str, facts: TableFacts) -> str:
    """Why a table's files cannot be read after a move to another folder; empty if they can."""
    snapshot = facts.snapshot
    resolver = PathResolver(lake)
    catalog = sorted(snapshot.features & {*CATALOG_FEATURES})
    if catalog:
        return f"a catalog keeps its newest commits ({catalog[0]}). Use the catalog to rename it"
    formats = snapshot.properties.get(_OTHER_FORMATS)
    if formats:
        return (
            f"readers of {formats} find its files by absolute paths. Unset the property"
            f" {_OTHER_FORMATS} first"
        )
    archived = why_archived(lake, facts)
    if archived:
        return f"{archived}, under the earlier key"
    if resolver(snapshot.uri) != key:
        return f"the folder {key} is a link. Use a real folder for the table"
    files = fold_table_files(snapshot, resolve=resolver, commits=facts.history.commits)
    elsewhere = sorted({*files.elsewhere, *files.kept_elsewhere, *files.outside, *files.unplaced})
    if elsewhere:
        return (
            f"its log names files outside of {key}, for example"
            f" {first_names(elsewhere, most=1)} (a shallow clone). Use a deep copy of the table"
        )
    return ""


def _identity(lake: Lake, key: str) -> tuple[str, int] | None:
    """Table id and version; `None` if there is no table, or its log cannot be read."""
    try:
        facts = lake.facts(key)
    except LakehouseError:
        return None
    return None if facts is None else _identity_of(facts)


def _identity_of(facts: TableFacts) -> tuple[str, int]:
    return facts.snapshot.table_id, facts.snapshot.version


def _by_kind(files: Sequence[MovingFile]) -> tuple[MovedFiles, ...]:
    counts = Counter[str]()
    sizes = Counter[str]()
    for file in files:
        counts[file.kind] += 1
        sizes[file.kind] += file.source.size_bytes
    return tuple(
        MovedFiles(kind=kind, count=count, size_bytes=sizes[kind]) for kind, count in counts.items()
    )


def _count_at(lake: Lake, new_key: str) -> int:
    """The number of objects at the new key that prevent a move.

    Other objects, for example records of pauses, are not counted: the move may replace them.
    """
    folders = (
        new_key,
        quarantine_key(new_key),
        f"_lakehouse/ingest/{new_key}",
        f"_lakehouse/deleted_keys/{new_key}",
    )
    return sum(len(lake.store.list(folder)) for folder in folders)


def _inner(files: Sequence[MovingFile], old_key: str) -> tuple[str, ...]:
    """Other tables in the table's folder. Staged rows below `_lakehouse/` are not tables."""
    roots = table_roots(file.source.name for file in files)
    own_keys = (old_key, quarantine_key(old_key))
    inner = (root for root in roots if root not in own_keys and not root.startswith("_lakehouse/"))
    return tuple(sorted(inner))


def _reads(reader: Table, table: Table) -> bool:
    return any(each.key in (table.key, table.formerly) for each in reader.inputs)


def _borrowers(lake: Lake, table: Table, files: Sequence[MovingFile]) -> tuple[str, ...]:
    """The other tables that may read files of the old folder, or whose log cannot be read."""
    old = table.formerly or ""
    own_keys = {old, table.key, quarantine_key(old), quarantine_key(table.key)}
    last_parts = {each.source.name.rpartition("/")[2] for each in files}
    resolver = PathResolver(lake)
    borrowers = list[str]()
    other_keys = {each for each in listed_tables(lake) if not each.startswith("_lakehouse/")}
    for key in sorted((other_keys | lake.elsewhere.keys()) - own_keys):
        try:
            facts = lake.facts(key)
            if facts is None:
                continue
            table_files = fold_table_files(
                facts.snapshot, resolve=resolver, commits=facts.history.commits
            )
        except LakehouseError:
            borrowers.append(key)
            continue
        if _is_borrowed(table_files, old, last_parts):
            borrowers.append(key)
    return tuple(borrowers)


def _is_borrowed(table_files: TableFiles, old: str, last_parts: set[str]) -> bool:
    """Whether a table may read a file of the folder `old`.

    A path that cannot be resolved to a file of the lake counts if its last part is in `last_parts`.
    """
    names = {*table_files.elsewhere, *table_files.kept_elsewhere}
    if any(name.startswith(f"{old}/") for name in names):
        return True
    return not table_files.unplaced.isdisjoint(last_parts)
