"""Finds the paths of data files in a damaged log.

Every commit, version checksum and checkpoint is searched independently of the others. In a damaged
file, the readable part is searched.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.core.delta.paths import is_absolute
from lakehouse.core.errors import Refused
from lakehouse.engine.delta_log.checkpoint import (
    UNREADABLE,
    batches,
    read_checkpoint,
    texts_of,
    vectors_of,
)
from lakehouse.engine.delta_log.log_segment import (
    LogChanged,
    UnreadableCheckpoint,
    find_segment,
    log_folder,
)
from lakehouse.engine.store import Store, StoredFile

_LEAVES = ("path", "deletionVector.storageType", "deletionVector.pathOrInlineDv")
_FIRST_COMMIT = f"{0:020}.json"
# A truncated string has no closing quote, so it does not match.
_PATH = re.compile(r'"(path|pathOrInlineDv)"\s*:\s*("(?:[^"\\]|\\.)*")')


def readable_paths(
    store: Store, key: str, *, trusts_checkpoints: bool = True
) -> frozenset[str] | None:
    """The paths in the readable part of a log; `None` if it may lack files of other tables.

    These are the paths of data files and the absolute paths of deletion vectors, as the log spells
    them. A shallow clone names the files of other tables in its first commit, and every checkpoint
    repeats these names. Therefore, the readable part is sufficient if it names any file and
    includes the first commit or a complete checkpoint. Use `trusts_checkpoints=False` if the log
    contradicts itself: then only the first commit is sufficient.
    """
    listing = store.list(log_folder(key))
    paths = set[str]()
    is_sufficient = trusts_checkpoints and _has_complete_checkpoint(store, key, listing)
    for file in listing:
        if file.name.endswith(".parquet"):
            paths |= _paths_in_checkpoint(store.read(file.name))
        elif file.name.endswith((".json", ".crc")):
            data = store.read(file.name)
            paths.update(_paths_in(data))
            if file.name.endswith(f"/{_FIRST_COMMIT}") and _is_complete(data):
                is_sufficient = True
    return frozenset(paths) if is_sufficient and paths else None


def _has_complete_checkpoint(store: Store, key: str, listing: Sequence[StoredFile]) -> bool:
    """Whether the whole checkpoint of any version can be read, and names a live file."""
    by_version: defaultdict[str, list[StoredFile]] = defaultdict(list)
    for file in listing:
        name = file.name.removeprefix(log_folder(key))
        if ".checkpoint" in name:
            by_version[name[:20]].append(file)
    for files in by_version.values():
        with suppress(LogChanged, UnreadableCheckpoint, FileNotFoundError, Refused):
            segment = find_segment(files, key)
            if segment is not None and read_checkpoint(store, segment).add_count:
                return True
    return False


def _paths_in(data: bytes) -> Iterator[str]:
    for kind, quoted in _PATH.findall(data.decode("utf-8", "replace")):
        try:
            path: str = json.loads(quoted, strict=False)
        except ValueError:
            continue
        if kind == "path" or is_absolute(path):
            yield path


def _is_complete(data: bytes) -> bool:
    """Whether every line of a commit can be read."""
    try:
        lines = [json.loads(line) for line in data.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return False
    return bool(lines) and all(isinstance(line, dict) for line in lines)


def _paths_in_checkpoint(data: bytes) -> set[str]:
    """The paths that can be read from a checkpoint's Parquet file, which may be damaged."""
    paths = set[str]()
    with suppress(*UNREADABLE), pq.ParquetFile(pa.BufferReader(data)) as file:
        for kind in ("add", "remove"):
            for rows in batches(file, kind, _LEAVES):
                paths.update(texts_of(rows, "path").to_pylist())
                vectors = [vector for _, vector in vectors_of(rows)]
                paths.update(
                    vector["pathOrInlineDv"] for vector in vectors if vector["storageType"] == "p"
                )
    return paths
