"""Reads the statistics of data files. A snapshot holds only their row counts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Set

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.delta.log.checkpoint import batches
from lakehouse.delta.log.log_segment import find_segment, log_folder
from lakehouse.store import Store, StoredFile


def read_statistics(
    store: Store, table: str, versions: Iterable[int], paths: Set[str]
) -> Mapping[tuple[int, str], str | None]:
    """The statistics (JSON) of the data files at `paths` in each version, by version and path.

    Each log file is read once, even if several versions need it. The oldest comes first, so that a
    data file's newest statistics replace its older statistics. Reading checkpoints of large tables
    takes most of the time. The sidecars of a V2 checkpoint are not read, so the result lacks the
    data files that are named only there.
    """
    versions_of = dict[str, list[int]]()
    listing = store.list(log_folder(table))
    for version in sorted({*versions}):
        for name in _log_files(listing, table, version):
            versions_of.setdefault(name, []).append(version)
    statistics_of = dict[tuple[int, str], str | None]()
    contents = store.read_many([*versions_of])
    for (name, versions_of_file), data in zip(versions_of.items(), contents, strict=True):
        for path, statistics in _statistics_in(name, data):
            if path in paths:
                for version in versions_of_file:
                    statistics_of[version, path] = statistics
    return statistics_of


def each_statistics(store: Store, table: str, version: int) -> Iterator[tuple[str, str | None]]:
    """Path and statistics (JSON) of each data file that the log files of a version add.

    Files that a later commit removes are included; files named only in sidecars are not. The oldest
    log file comes first, so the last statistics of a path are the valid ones. The statistics are
    never all in memory.
    """
    names = _log_files(store.list(log_folder(table)), table, version)
    for name, data in zip(names, store.read_many(names), strict=True):
        yield from _statistics_in(name, data)


def _log_files(listing: Iterable[StoredFile], table: str, version: int) -> list[str]:
    segment = find_segment(listing, table, version=version)
    if segment is None:
        return []
    return [file.name for file in (*segment.checkpoint, *segment.tail)]


def _statistics_in(name: str, data: bytes) -> Iterator[tuple[str, str | None]]:
    """Path and statistics of each `add` action in the log file `name`."""
    if name.endswith(".parquet"):
        yield from _in_checkpoint(data)
        return
    for line in data.splitlines():
        if line.strip():
            add = json.loads(line).get("add")
            if add:
                yield add["path"], add.get("stats")


def _in_checkpoint(data: bytes) -> Iterator[tuple[str, str | None]]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for rows in batches(file, "add", ("path", "stats")):
            if rows.type.get_field_index("stats") >= 0:
                statistics = rows.field("stats").to_pylist()
                yield from zip(rows.field("path").to_pylist(), statistics, strict=True)
