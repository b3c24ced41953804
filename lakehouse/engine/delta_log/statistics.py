"""Reads the statistics of data files, which a snapshot does not hold."""

import json
from collections.abc import Iterable, Iterator, Mapping, Set

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.engine.delta_log.checkpoint import batches
from lakehouse.engine.delta_log.log_segment import find_segment, log_folder
from lakehouse.engine.store import Store


def read_statistics(
    store: Store, table: str, versions: Iterable[int], paths: Set[str]
) -> Mapping[tuple[int, str], str | None]:
    """The statistics of the data files at `paths` as JSON, as of each version, by version and path.

    Each log file is read once, oldest first, so that a data file's newest statistics replace older
    ones. Reading checkpoints of large tables takes most of the time.
    """
    versions_of = dict[str, list[int]]()
    listing = store.list(log_folder(table))
    for version in sorted({*versions}):
        segment = find_segment(listing, table, version=version)
        for log_file in () if segment is None else (*segment.checkpoint, *segment.tail):
            versions_of.setdefault(log_file.name, []).append(version)
    statistics_of = dict[tuple[int, str], str | None]()
    contents = store.read_many([*versions_of])
    for (name, in_versions), data in zip(versions_of.items(), contents, strict=True):
        recorded = _in_checkpoint(data) if name.endswith(".parquet") else _added_in(data)
        statistics_of.update(
            ((version, path), statistics)
            for path, statistics in recorded
            if path in paths
            for version in in_versions
        )
    return statistics_of


def each_statistics(store: Store, table: str, version: int) -> Iterator[tuple[str, str | None]]:
    """Path and statistics (JSON) of each data file that the log files of a version add.

    The oldest log file comes first, so the last statistics of a path are the valid ones. The
    statistics are never all in memory.
    """
    segment = find_segment(store.list(log_folder(table)), table, version=version)
    names = [
        file.name for file in (() if segment is None else (*segment.checkpoint, *segment.tail))
    ]
    for name, data in zip(names, store.read_many(names), strict=True):
        yield from _in_checkpoint(data) if name.endswith(".parquet") else _added_in(data)


def _added_in(data: bytes) -> Iterable[tuple[str, str | None]]:
    lines = (json.loads(line) for line in data.splitlines() if line.strip())
    return ((line["add"]["path"], line["add"].get("stats")) for line in lines if line.get("add"))


def _in_checkpoint(data: bytes) -> Iterator[tuple[str, str | None]]:
    with pq.ParquetFile(pa.BufferReader(data)) as file:
        for rows in batches(file, "add", ("path", "stats")):
            if rows.type.get_field_index("stats") >= 0:
                statistics = rows.field("stats").to_pylist()
                yield from zip(rows.field("path").to_pylist(), statistics, strict=True)
