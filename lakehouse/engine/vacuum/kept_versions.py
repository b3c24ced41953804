"""The versions of a table that a vacuum keeps, because its declaration names them.

**Safety property** (tests in `test_kept_versions.py`): if a kept version cannot be read, the vacuum
is refused, because the files to keep are unknown.
"""

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.vacuum_policy import DEFAULT_LOG_RETENTION, LOG_RETENTION
from lakehouse.core.delta.protocol import span_ms_of
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Broken, Refused
from lakehouse.core.inventory.table_files import fold_table_files
from lakehouse.core.vacuum.facts import KeptVersion
from lakehouse.engine.delta_log.log_segment import find_segment, log_folder
from lakehouse.engine.lake import Lake
from lakehouse.engine.path_resolver import PathResolver
from lakehouse.engine.store import Store

_LOG_CLEANUP = "delta.enableExpiredLogCleanup"


def kept_versions(lake: Lake, table: Table, snapshot: Snapshot) -> tuple[KeptVersion, ...]:
    """The versions to keep, oldest first; `snapshot` is the table's newest version.

    A named version that does not exist yet is omitted.

    Raises:
        Refused: a version cannot be read, or reads files outside the table's folder.
    """
    named = sorted({*table.vacuum.keep_versions})
    return tuple(_read(lake, snapshot, version) for version in named if version <= snapshot.version)


def _read(lake: Lake, snapshot: Snapshot, version: int) -> KeptVersion:
    """The files that a version needs, and how long Delta keeps the version's log files."""
    try:
        facts = lake.facts(snapshot.table, version=version)
        if facts is None:
            raise Refused("the version's log files are gone")
        files = fold_table_files(facts.snapshot, resolve=PathResolver(lake))
        if elsewhere := [*files.elsewhere, *files.outside]:
            raise Refused(
                f"the version reads files outside the table's folder, for example {min(elsewhere)},"
                " which a vacuum of another table may delete"
            )
    except (Refused, Broken) as error:
        raise Refused(
            f"vacuum of {snapshot.table}: version {version} is named in Vacuum.keep_versions, but "
            f"cannot be kept: {error}. Either repair this, or remove {version} from "
            "Vacuum.keep_versions"
        ) from error
    return KeptVersion(
        version=version,
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
