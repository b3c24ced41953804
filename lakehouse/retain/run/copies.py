"""Copies files into an archive, or writes their rows again with Spark, and compares the result.

A file of an archive has the name `<milliseconds>-<number>-<its name>`: its age is known even if no
commit names it, on a disk too, where a copy has the time of its original.
"""

import json
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, unquote

from lakehouse.core.delta.partition_values import as_spark_spells
from lakehouse.core.delta.paths import name_in_table
from lakehouse.core.delta.snapshot import PartitionValues, Snapshot
from lakehouse.core.errors import Broken
from lakehouse.engine.clock import now_ms
from lakehouse.engine.compaction.row_hashes_spark import READ_CONFS
from lakehouse.engine.delta_log.raw_actions import Action
from lakehouse.engine.lake import Lake, TableSession
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark import statements
from lakehouse.engine.spark.frames import content_hash, literal_path, table_at
from lakehouse.engine.spark.temporary_confs import session_confs
from lakehouse.engine.store import LOCAL, Store, StoredFile
from lakehouse.retain.plan.archive import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUESTS_AT_ONCE = 16
_FOOTER_BYTES = 64 * 1024
_CREATED = re.compile(r"(?:.*/)?(\d{13})-\d+-[^/]*")
# The characters that Spark escapes in the names of partition folders.
# Source: apache/spark v4.2.0, ExternalCatalogUtils.scala, charToEscape
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A file for the archive's log. `path` is URL-encoded, `statistics` are JSON."""

    path: str
    values: PartitionValues
    size_bytes: int
    statistics: str


def created_ms(name: str) -> int | None:
    """When a file of an archive was written; `None` for files that no archive run has written."""
    match = _CREATED.fullmatch(name)
    return None if match is None else int(match[1])


def copy_files(
    lake: Lake,
    table_key: str,
    partitions: Sequence[Partition],
    storage_class: str,
    adds: Mapping[str, Action],
) -> list[ArchivedFile]:
    """Copies the files of these partitions, and compares each copy with its original.

    Raises:
        Broken: a file is missing or has another size than in the log, or a copy differs.
    """
    files = [(each.values, file) for each in partitions for file in each.files]
    run_ms = now_ms()

    def copy(item: tuple[int, Any]) -> ArchivedFile:
        number, (values, file) = item
        inside = name_in_table(file.path)
        assert inside is not None
        original = lake.store.stat(f"{table_key}/{inside}")
        if original is None or original.size_bytes != file.size_bytes:
            raise Broken(
                f"archive of {table_key}: {inside} is missing, or has another size than the log"
                " says. The table is unchanged. Check the table"
            )
        base_name = f"{run_ms}-{number}-{posixpath.basename(inside)}"
        name = f"{_folder(values)}/{base_name}"
        statistics = adds.get(file.path, {}).get("stats") or json.dumps(
            {"numRecords": file.row_count} if file.row_count is not None else {}
        )
        _copy(lake.store, original, f"archive/{table_key}/{name}", storage_class)
        return ArchivedFile(
            path=quote(name, safe="/=-_.~"),
            values=values,
            size_bytes=file.size_bytes,
            statistics=statistics,
        )

    return in_parallel(copy, enumerate(files))


def _copy(store: Store, original: StoredFile, name: str, storage_class: str) -> None:
    # A lifecycle rule that selects the table's files by a tag must not apply to their copies.
    source = original if store.bucket == LOCAL else replace(original, storage_class=storage_class)
    store.copy(source, name)
    copied = store.stat(name)
    if copied is None or not _is_same(store, original, copied):
        raise Broken(
            f"archive: {name} differs from {original.name}, from which it was copied. The table is"
            " unchanged. Check the storage, then run the archive again"
        )


def _is_same(store: Store, original: StoredFile, copied: StoredFile) -> bool:
    """Whether size and content are equal; on S3 the ETag or, if it differs, the footers."""
    if original.size_bytes != copied.size_bytes:
        return False
    if store.checksum(original) == store.checksum(copied):
        return True
    if store.bucket == LOCAL:
        return False
    # The copy of an object gets another ETag if it is encrypted or was uploaded in parts.
    ends = [store.read_end(each.name, _FOOTER_BYTES) for each in (original, copied)]
    return ends[0] == ends[1]


def rewrite_partitions(
    session: TableSession,
    snapshot: Snapshot,
    partitions: Sequence[Partition],
    names: Mapping[str, str],
    storage_class: str,
) -> list[ArchivedFile]:
    """Writes the rows of these partitions to plain files with Spark, and copies these.

    `names` maps the table's columns to those of the archive.

    Raises:
        Broken: the written rows differ from the table's rows.
    """
    store = session.lake.store
    run_ms = now_ms()
    folder = f"_lakehouse/archiving/{session.key}/{run_ms}"
    uri = f"{session.lake.settings.spark_root}/{folder}"
    predicate = statements.partition_predicate(snapshot.columns, [e.values for e in partitions])
    with session_confs(session.spark, READ_CONFS):
        rows = table_at(session.spark, snapshot, within=[predicate])
        rows = rows.select(*(F.col(statements.quote(n)).alias(names[n]) for n in rows.columns))
        keys = [names[name] for name in snapshot.partition_columns]
        rows.write.partitionBy(*keys).mode("error").parquet(uri)
        written = session.spark.read.schema(rows.schema).parquet(literal_path(uri))
        if _sums(rows, keys) != _sums(written, keys):
            raise Broken(
                f"archive of {session.key}: the rows that Spark wrote differ from those of version"
                f" {snapshot.version}. The table is unchanged. Check the table"
            )
    staged = [file for file in store.list(folder) if file.name.endswith(".parquet")]

    def copy(item: tuple[int, StoredFile]) -> ArchivedFile:
        number, file = item
        *folders, base_name = file.name.removeprefix(f"{folder}/").split("/")
        values = _values_in(folders)
        name = f"{_folder(values)}/{run_ms}-{number}-{base_name}"
        _copy(store, file, f"archive/{session.key}/{name}", storage_class)
        return ArchivedFile(
            path=quote(name, safe="/=-_.~"),
            values=values,
            size_bytes=file.size_bytes,
            statistics=json.dumps({"numRecords": _rows_in_footer(store, file.name)}),
        )

    files = in_parallel(copy, enumerate(staged))
    store.delete([file.name for file in store.list(folder)])
    return files


def _sums(
    rows: "DataFrame", partition_by: Sequence[str]
) -> dict[tuple[object, ...], tuple[int, int, int]]:
    """The row count of each partition, and the sums of the halves of its row hashes."""
    keys = [statements.quote(name) for name in partition_by]
    fields = [field for field in rows.schema.fields if field.name not in partition_by]
    hashed = rows.select(*keys, content_hash(fields).alias("_hash"))
    high = F.sum(F.shiftright("_hash", 32))
    low = F.sum(F.col("_hash").bitwiseAND(F.lit(0xFFFFFFFF)))
    sums = hashed.groupBy(*keys).agg(F.count(F.lit(1)), high, low).collect()
    return {tuple(row[: len(keys)]): tuple(row[len(keys) :]) for row in sums}


def _rows_in_footer(store: Store, name: str) -> int:
    import pyarrow.parquet as pq

    return pq.read_metadata(BytesIO(store.read(name))).num_rows


def _folder(values: PartitionValues) -> str:
    folders = list[str]()
    for name, value in values:
        spelled = as_spark_spells(value, "string") if value else None
        text = _NULL_FOLDER if not spelled else _escaped(spelled)
        folders.append(f"{_escaped(name)}={text}")
    return "/".join(folders)


def _escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _values_in(folders: Iterable[str]) -> PartitionValues:
    pairs = [folder.partition("=") for folder in folders]
    return tuple(
        (unquote(name), None if text == _NULL_FOLDER else unquote(text)) for name, _, text in pairs
    )


def in_parallel(work: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `work` in order, several at a time."""
    with ThreadPoolExecutor(max_workers=_REQUESTS_AT_ONCE) as pool:
        return [*pool.map(work, items)]
