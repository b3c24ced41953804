"""The versions of a table that a vacuum keeps: named in the declaration, or pinned by a reader.

A pin keeps one version for a reader until a given time. It is recorded in the journal as
`_lakehouse/pins/<layer>/<name>/<reader>-<version>.json`. Setting a pin deletes the records of the
table's expired pins.

**Safety properties** (tests in `test_kept_versions.py`)
- If a kept version cannot be read, the vacuum is refused, because the files to keep are unknown.
- A pin is recorded only while no vacuum deletes files of the table, and only if storage has all of
  the version's files that the newest version does not need. A pin may have been set after a vacuum
  was planned, so the vacuum reads the pins again before each batch of deletions.
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
from lakehouse.engine.table_lock import hold

_FOLDER = "_lakehouse/pins"
_LOG_CLEANUP = "delta.enableExpiredLogCleanup"


class KeptVersions:
    """Reads which versions of one table are kept now. Each version's files are read only once."""

    def __init__(self, lake: Lake, table: Table) -> None:
        self._lake = lake
        self._table = table
        self._known = dict[tuple[str, int], KeptVersion]()

    def now(self, snapshot: Snapshot) -> tuple[KeptVersion, ...]:
        """The versions that are kept now, oldest first; `snapshot` is the table's newest version.

        A named version that does not exist yet is omitted.

        Raises:
            Refused: a version cannot be read, or reads files outside the table's folder.
            Broken: the record of a pin is damaged.
        """
        policy = self._table.vacuum
        kept_versions = list[KeptVersion]()
        for version in policy.keep_versions:
            if version <= snapshot.version:
                why = "named in Vacuum.keep_versions"
                way_out = f"remove {version} from Vacuum.keep_versions"
                kept_versions.append(self._read(snapshot, version, why=why, way_out=way_out))
        # Without declared readers, no pin is in force, so none is read.
        recorded_pins = pins(self._lake.store, self._table.key) if policy.readers else ()
        for pin in recorded_pins:
            if not pin.holds(now_ms(), table_id=snapshot.table_id, readers=policy.readers):
                continue
            way_out = f"use {remove_command(pin)}"
            pinned = self._read(snapshot, pin.version, why=pin.why, way_out=way_out)
            log_until_ms = pinned.log_until_ms
            # The end of the log files matters only if it comes before the end of the pin.
            if log_until_ms is not None and log_until_ms >= pin.until_ms:
                pinned = replace(pinned, log_until_ms=None)
            kept_versions.append(pinned)
        return tuple(sorted(kept_versions, key=lambda each: (each.version, each.why)))

    def _read(self, snapshot: Snapshot, version: int, *, why: str, way_out: str) -> KeptVersion:
        key = (snapshot.table_id, version)
        if key not in self._known:
            try:
                self._known[key] = read_version(self._lake, snapshot, version)
            except (Refused, Broken) as error:
                raise Refused(
                    f"vacuum of {snapshot.table}: version {version} is {why}, but cannot be kept: "
                    f"{error}. Either repair this, or give up the version: {way_out}"
                ) from error
        return replace(self._known[key], why=why)


def read_version(lake: Lake, snapshot: Snapshot, version: int) -> KeptVersion:
    """The files that a version of a table needs, and how long Delta keeps the version's log files.

    `snapshot` is the newest version. The `why` of the result is empty.

    Raises:
        Refused, Broken: the version's log cannot be read, or the version reads files outside the
            table's folder.
    """
    facts = lake.facts(snapshot.table, version=version)
    if facts is None:
        raise Refused("the version's log files are gone")
    files = fold_table_files(facts.snapshot, resolve=PathResolver(lake))
    if elsewhere := [*files.elsewhere, *files.outside]:
        raise Refused(
            f"the version reads files outside the table's folder, for example {min(elsewhere)}, "
            "which a vacuum of another table may delete"
        )
    return KeptVersion(
        version=version,
        why="",
        files=frozenset([*files.live, *files.vectors]),
        log_until_ms=_log_until_ms(lake.store, snapshot, version),
    )


def _log_until_ms(store: Store, snapshot: Snapshot, version: int) -> int | None:
    """The time from which Delta may delete log files that the version needs; `None` if never.

    Source: delta-io/delta v4.4.0, `MetadataCleanup.scala`: when Delta writes a checkpoint, it
    deletes log files that are older than the log's retention.
    """
    if snapshot.properties.get(_LOG_CLEANUP, "true").lower() == "false":
        return None
    table = snapshot.table
    segment = find_segment(store.list(log_folder(table)), table, version=version)
    log_files = () if segment is None else (*segment.checkpoint, *segment.tail)
    # An interval that cannot be understood counts as 0: the time may be too early, never too late.
    span_ms = span_ms_of(snapshot.properties.get(LOG_RETENTION, DEFAULT_LOG_RETENTION))
    return min((file.modified_ms for file in log_files), default=0) + (span_ms or 0)


def pins(store: Store, table_key: str = "") -> tuple[Pin, ...]:
    """All recorded pins, including expired ones; with `table_key`, only the pins of that table.

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
    """Records a pin, which replaces an earlier pin of the same reader and version.

    Raises:
        Refused: the reader is not declared, or the version does not exist, cannot be read, or lacks
            files.
        Transient: another process holds the table.
    """
    where = f"pin of {table.key}"
    if reader not in table.vacuum.readers:
        declared = ", ".join(table.vacuum.readers) or "none"
        raise Refused(
            f"{where}: {reader!r} is not a declared reader of the table (declared: {declared}). "
            f"Either use a declared reader, or declare Vacuum(readers=({reader!r},))"
        )
    with hold(lake, None, table.key, owner=where):
        facts = lake.facts(table.key)
        if facts is None or version > facts.snapshot.version:
            missing = "no table" if facts is None else f"no version after {facts.snapshot.version}"
            raise Refused(f"{where}: there is {missing} yet. Use an existing version")
        try:
            kept = read_version(lake, facts.snapshot, version)
        except Refused as error:
            raise Refused(f"{where}: version {version} cannot be pinned: {error}") from error
        _refuse_gaps(lake, facts, kept)
        expired_names = list[str]()
        for name, earlier_pin in _named_pins(lake.store, table.key):
            if earlier_pin.until_ms <= now_ms():
                expired_names.append(name)
        pin = Pin(
            table=table.key,
            table_id=facts.snapshot.table_id,
            version=version,
            reader=reader,
            since_ms=now_ms(),
            until_ms=until_ms,
        )
        own_name = _record_name(table.key, reader, version)
        lake.store.put(own_name, encoded(asdict(pin)))
        lake.store.delete(name for name in expired_names if name != own_name)
    return replace(kept, why=pin.why)


def remove_pin(store: Store, table_key: str, *, version: int, reader: str) -> bool:
    """Removes a pin; returns whether there was one."""
    name = _record_name(table_key, reader, version)
    existed = store.stat(name) is not None
    store.delete([name])
    return existed


def remove_command(pin: Pin) -> str:
    """The command that removes a pin."""
    return f"lakehouse pin {pin.table} --version {pin.version} --reader {pin.reader} --remove"


def _refuse_gaps(lake: Lake, facts: TableFacts, kept: KeptVersion) -> None:
    """Refuses a version that has lost files. Files of the newest version are not checked."""
    newest = fold_table_files(facts.snapshot, resolve=PathResolver(lake))
    older_names = sorted(kept.files - newest.live.keys() - newest.vectors.keys())
    lake_names = [f"{newest.table}/{name}" for name in older_names]
    with ThreadPoolExecutor(max_workers=ASKED_AT_ONCE) as pool:
        stored = zip(older_names, pool.map(lake.store.stat, lake_names), strict=True)
        missing = [name for name, file in stored if file is None]
    if missing:
        raise Refused(
            f"pin of {newest.table}: version {kept.version} lacks {len(missing)} of its "
            f"{len(kept.files)} files, for example {missing[0]}, because of an earlier vacuum. Use "
            f"a version that was current after {utc_text(now_ms() - (newest.retention_ms or 0))}"
        )


def _record_name(table_key: str, reader: str, version: int) -> str:
    return f"{_FOLDER}/{table_key}/{reader}-{version}.json"
