"""The versions of a table that its vacuum keeps: named in the declaration, or pinned by a reader.

A pin is a record in the journal, `_lakehouse/pins/<layer>/<name>/<reader>-<version>.json`. It ends
at its own time. The next pin of the table deletes records of pins that have ended.

**Safety properties** (tests in `test_kept_versions.py`)
- A version that cannot be read refuses the vacuum, since the files that it needs are unknown.
- A pin is recorded only while no vacuum of the table runs, and only if all of the version's files
  are in storage. The last check of a vacuum reads the pins again before each batch.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.vacuum_policy import DEFAULT_LOG_RETENTION, LOG_RETENTION
from lakehouse.core.delta.protocol import span_ms_of
from lakehouse.core.delta.snapshot import Snapshot, TableFacts
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.inventory.table_files import fold_table_files
from lakehouse.core.text import utc_text
from lakehouse.core.vacuum.facts import ASKED_AT_ONCE, KeptVersion, Pin
from lakehouse.engine.clock import now_ms
from lakehouse.engine.delta_log.log_segment import find_segment, log_folder
from lakehouse.engine.journal.records import damaged, encoded
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.store import Store
from lakehouse.engine.table_lock import hold_alone

_FOLDER = "_lakehouse/pins"
_LOG_CLEANUP = "delta.enableExpiredLogCleanup"


class KeptVersions:
    """Reads which versions of one table are kept now. The files of each version are read once."""

    def __init__(self, lake: Lake, table: Table) -> None:
        self._lake = lake
        self._table = table
        self._known = dict[tuple[str, int], KeptVersion]()

    def now(self, snapshot: Snapshot) -> tuple[KeptVersion, ...]:
        """The versions that are kept now, oldest first; `snapshot` is the table's newest version.

        A named version that does not exist yet is omitted.

        Raises:
            Refused: a version can no longer be read, or reads files of other tables.
            Broken: the record of a pin is damaged.
        """
        policy = self._table.vacuum
        kept = list[KeptVersion]()
        for version in policy.keep_versions:
            if version <= snapshot.version:
                why = "named in Vacuum.keep_versions"
                way_out = f"remove {version} from Vacuum.keep_versions"
                kept.append(self._read(snapshot, version, why=why, way_out=way_out))
        # Without declared readers, no request is sent.
        for pin in pins(self._lake.store, self._table.key) if policy.readers else ():
            if pin.holds(now_ms(), table_id=snapshot.table_id, readers=policy.readers):
                way_out = f"use {remove_command(pin)}"
                found = self._read(snapshot, pin.version, why=pin.why, way_out=way_out)
                outlives = found.log_until_ms is not None and found.log_until_ms < pin.until_ms
                kept.append(found if outlives else replace(found, log_until_ms=None))
        return tuple(sorted(kept, key=lambda each: (each.version, each.why)))

    def _read(self, snapshot: Snapshot, version: int, *, why: str, way_out: str) -> KeptVersion:
        key = (snapshot.table_id, version)
        if key not in self._known:
            try:
                self._known[key] = read_version(self._lake, snapshot, version)
            except (Refused, Broken) as error:
                raise Refused(
                    f"vacuum of {snapshot.table}: version {version} is {why}, but {error}. Either "
                    f"repair that, or give up the version: {way_out}"
                ) from error
        return replace(self._known[key], why=why)


def read_version(lake: Lake, snapshot: Snapshot, version: int) -> KeptVersion:
    """The files and the log files that a version of a table needs.

    Raises:
        Refused, Broken: its log cannot be read, or it reads files of other tables.
    """
    facts = lake.facts(snapshot.table, version=version)
    if facts is None:
        raise Refused("its log files are gone")
    files = fold_table_files(facts.snapshot, place=PathResolver(lake))
    if elsewhere := [*files.elsewhere, *files.outside]:
        raise Refused(
            f"it reads files outside the table's folder, like {min(elsewhere)}, which a vacuum of "
            "their own table may delete"
        )
    return KeptVersion(
        version=version,
        why="",
        files=frozenset([*files.live, *files.vectors]),
        log_until_ms=_log_until_ms(lake.store, snapshot, version),
    )


def _log_until_ms(store: Store, snapshot: Snapshot, version: int) -> int | None:
    """When Delta may begin to delete the version's log files; `None` if it never does.

    Source: delta-io/delta v4.4.0, `MetadataCleanup.scala`: with a checkpoint, files older than the
    log's retention are deleted.
    """
    if snapshot.properties.get(_LOG_CLEANUP, "true").lower() == "false":
        return None
    table = snapshot.table
    segment = find_segment(store.list(log_folder(table)), table, version=version)
    log_files = () if segment is None else (*segment.checkpoint, *segment.tail)
    span_ms = span_ms_of(snapshot.properties.get(LOG_RETENTION, DEFAULT_LOG_RETENTION))
    return min((file.modified_ms for file in log_files), default=0) + (span_ms or 0)


def pins(store: Store, table_key: str = "") -> tuple[Pin, ...]:
    """All recorded pins, also those that have ended; optionally of one table.

    Raises:
        Broken: a record is damaged.
    """
    return tuple(pin for _, pin in _named_pins(store, table_key))


def _named_pins(store: Store, table_key: str) -> Iterator[tuple[str, Pin]]:
    folder = f"{_FOLDER}/{table_key}".removesuffix("/")
    names = [file.name for file in store.list(folder) if file.name.endswith(".json")]
    for name, data in zip(names, store.read_many(names), strict=True):
        try:
            yield name, Pin(**json.loads(data))
        except (ValueError, TypeError) as error:
            raise damaged(name, error) from error


def set_pin(lake: Lake, table: Table, *, version: int, reader: str, until_ms: int) -> KeptVersion:
    """Records a pin, which replaces an earlier one of the same reader and version.

    Raises:
        Refused: the reader is not declared, or the version does not exist, cannot be read, or lacks
            files.
        Transient: another process holds the table.
    """
    where = f"pin of {table.key}"
    if reader not in table.vacuum.readers:
        known = ", ".join(table.vacuum.readers) or "none"
        raise Refused(
            f"{where}: {reader!r} is not among its readers ({known}). Use one of them, or declare "
            f"Vacuum(readers=({reader!r},))"
        )
    with hold_alone(lake, table.key, owner=where):
        facts = lake.facts(table.key)
        if facts is None or version > facts.snapshot.version:
            newest = "no table" if facts is None else f"no version after {facts.snapshot.version}"
            raise Refused(f"{where}: there is {newest} yet. Use a version that exists")
        try:
            kept = read_version(lake, facts.snapshot, version)
        except Refused as error:
            raise Refused(f"{where}: version {version} cannot be pinned, since {error}") from error
        _refuse_gaps(lake, facts, kept)
        ended = [
            name for name, pin in _named_pins(lake.store, table.key) if pin.until_ms <= now_ms()
        ]
        pin = Pin(
            table=table.key,
            table_id=facts.snapshot.table_id,
            version=version,
            reader=reader,
            since_ms=now_ms(),
            until_ms=until_ms,
        )
        lake.store.put(_name(table.key, reader, version), encoded(asdict(pin)))
        lake.store.delete(name for name in ended if name != _name(table.key, reader, version))
    return replace(kept, why=pin.why)


def remove_pin(store: Store, table_key: str, *, version: int, reader: str) -> bool:
    """Removes a pin; returns whether there was one."""
    name = _name(table_key, reader, version)
    was_there = store.stat(name) is not None
    store.delete([name])
    return was_there


def remove_command(pin: Pin) -> str:
    """The command that removes a pin."""
    return f"lakehouse pin {pin.table} --version {pin.version} --reader {pin.reader} --remove"


def _refuse_gaps(lake: Lake, facts: TableFacts, kept: KeptVersion) -> None:
    """Refuses a version that has lost files. Files of the newest version are taken to be there."""
    newest = fold_table_files(facts.snapshot, place=PathResolver(lake))
    older = sorted(kept.files - newest.live.keys() - newest.vectors.keys())
    names = [f"{newest.table}/{name}" for name in older]
    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        stored = zip(older, pool.map(lake.store.stat, names), strict=True)
        gone = [name for name, file in stored if file is None]
    if gone:
        raise Refused(
            f"pin of {newest.table}: {len(gone)} of the {len(kept.files)} files of version "
            f"{kept.version} are gone, like {gone[0]}: a vacuum deleted them. Use a version that "
            f"was current after {utc_text(now_ms() - (newest.retention_ms or 0))}"
        )


def _name(table_key: str, reader: str, version: int) -> str:
    return f"{_FOLDER}/{table_key}/{reader}-{version}.json"
