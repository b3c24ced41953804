"""Large landed files that Spark reads itself, in place of this process.

Spark's error is no proof that a file is damaged, since a read that storage throttles, denies or
cuts short fails with the same condition. So this process reads the file again: only content that it
cannot read, either, is damaged. An error of storage is raised, and the load is tried again later.

A damaged number in a Parquet page, or a text without line breaks such as a file that was only
allocated, makes Spark ask for more memory than there is, and ends it. This process reads both in
small parts.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from os import SEEK_CUR, SEEK_END, SEEK_SET
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakehouse.base.errors import Broken, Refused
from lakehouse.declare.landing import Landing
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.parse_lines import DIGEST, ORIGIN, RAW, REASON, staged_lines
from lakehouse.land.plan.batches import Batch, KnownFiles, LandedFile, files_of_spark
from lakehouse.land.plan.choose_files import FileRead, may_be_by_spark, read_by_this_process
from lakehouse.land.plan.records import (
    MAX_RECORD_BYTES,
    MIB,
    MOST_COLUMNS,
    RESCUED,
    CsvFields,
    NewColumns,
)
from lakehouse.land.spark import csv as spark_csv
from lakehouse.land.spark import json as spark_json
from lakehouse.land.spark import parquet as spark_parquet
from lakehouse.land.spark import text as spark_text
from lakehouse.land.spark.frozen_files import file_of_spark
from lakehouse.land.staging import staged_fields
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.errors import ended_spark
from lakehouse.spark.frames import literal_path
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# With more undeclared fields in a batch, all of them are rescued: their names are data.
_MOST_FIELDS = 5 * MOST_COLUMNS
# The error of a file whose checksums (`.name.crc`) do not match. Source: Hadoop, FSInputChecker
_OTHER_CHECKSUM = "org.apache.hadoop.fs.ChecksumException"
# Source: Spark 4.2.0, error-conditions.json, FAILED_READ_FILE
_FAILED = re.compile(r"\[FAILED_READ_FILE\.(?!FILE_NOT_EXIST)\w+\][^\n]*? file (\S+)\.(?:\s|$)")


def reads_of_spark(
    session: TableSession, batch: Batch, known: KnownFiles | None
) -> dict[str, FileRead | None]:
    """The files that Spark reads itself, and files that are too large for anything else.

    A file that is gone is `None`. Without `known`, the batch is an earlier one.
    """
    landing = session.table.landing
    reads = dict[str, FileRead]()
    gone = dict[str, None]()
    for file in batch.files:
        is_by_spark = file.by_spark if known is None else may_be_by_spark(file, landing)
        if not is_by_spark:
            continue
        path = f"{batch.prefix}{file.name}"
        try:
            if known is not None:
                read = _read_by_spark(session, path, file, known)
            else:
                # A change shows in the digest.
                present = file_of_spark(session.lake.store, path, file)
                record_count = sum(records for _, records in file.blocks)
                read = FileRead(file=present, record_count=record_count)
        except FileNotFoundError:
            gone[file.name] = None
        except Refused:  # archived, perhaps; the other way of reading finds out
            continue
        else:
            if read is not None:
                reads[file.name] = read
    names = [name for name, read in reads.items() if read.file.by_spark]
    if known is not None and landing.format != "parquet" and names:
        files = [file for file in batch.files if file.name in names]
        counted = spark_text.counted(session, batch.prefix, files, reads)
        reads = {name: read for name, read in {**reads, **counted}.items() if read is not None}
    return {**gone, **reads}


def _read_by_spark(
    session: TableSession, path: str, file: LandedFile, known: KnownFiles
) -> FileRead | None:
    """The file as Spark will read it; `None` if this process has to read it.

    If records were loaded under its name, Spark does not read it. Either the checksums are compared
    (`judge_file`), or this process compares the content with the loaded content.
    """
    landing = session.table.landing
    store = session.lake.store
    # Hadoop refuses a colon in a path on disk, and in a path that Spark takes for a pattern.
    address = f"{session.lake.settings.spark_root}/{path}"
    is_refused = address.startswith("/") or literal_path(address) != address
    if is_refused and ":" in (address.partition("://")[2] or address):
        return read_by_this_process(file, landing, "Hadoop cannot read a name with a colon")
    kind = spark_parquet if landing.format == "parquet" else spark_text
    read = kind.read_by_spark(store, path, file, landing)
    loaded = known.loaded.get(file.name)
    if read is None or loaded is None or known.may_load(read.file):
        return read
    # The digest of a file that this process has loaded is that of its whole content.
    if not loaded.by_spark:
        return None
    return replace(read, record_count=0, file=replace(read.file, by_spark=False))


def spark_lines(
    session: TableSession, batch: Batch, plain: Collection[str] = ()
) -> "list[DataFrame]":
    """Frames like `parse_lines.staged_lines` of the files that Spark reads, already parsed.

    For the files named `plain`, see `text_lines`.

    Raises:
        Broken: a file is gone, or is not the file of the batch any more.
    """
    if session.table.landing.format == "parquet":
        return spark_parquet.parquet_lines(session, batch)
    return spark_text.text_lines(session, batch, plain)


def staged_csv(session: TableSession, batch: Batch) -> "list[DataFrame]":
    """Frames like `spark_lines` of the staged records of CSV files, one for all with one header."""
    lake = session.lake
    landing = session.table.landing
    parts = defaultdict[CsvFields, list[str]](list)
    for name, footer in spark_parquet.staged_footers(session, batch):
        parts[staged_fields(footer.metadata)].append(name)
    frames = list["DataFrame"]()
    for fields, names in parts.items():
        lines = staged_lines(lake, session.spark, names).withColumnRenamed(RAW, "value")
        reason = F.when(F.col(REASON).isNotNull(), F.col(REASON))
        frames.append(spark_csv.judged_lines(lines, fields, landing, [*ORIGIN, DIGEST], reason))
    return frames


def with_new_columns(
    session: TableSession,
    batch: Batch,
    known: Sequence[str],
    table_types: Mapping[str, str],
) -> Batch:
    """The batch with columns for undeclared fields of the JSON files that Spark reads.

    `known` are the columns that earlier batches added; `table_types` as in `KnownFiles`.
    """
    landing = session.table.landing
    if landing.format != "json" or landing.new_columns == "refuse" or not files_of_spark(batch):
        return batch
    columns = NewColumns(landing=landing, known=(*known, *batch.columns), table_types=table_types)
    if landing.new_columns == "rescue" and RESCUED in columns.known:
        return batch  # no name needs a column
    with session_confs(session.spark, spark_text.text_confs()):
        for lines in spark_lines(session, batch):
            names = spark_json.names_of_others(lines, _MOST_FIELDS)
            columns.see_names(names if len(names) < _MOST_FIELDS else [RESCUED])
    return replace(batch, columns=(*batch.columns, *columns.columns))


def changed_files(store: Store, batch: Batch) -> dict[str, str]:
    """The files that Spark reads and that are not those of the batch any more, with this problem.

    A file that is gone is not among them.
    """
    changed = dict[str, str]()
    for file in files_of_spark(batch):
        with suppress(FileNotFoundError):
            now = file_of_spark(store, f"{batch.prefix}{file.name}", file)
            if now.digest != file.digest:
                changed[file.name] = "it was changed while it was loaded"
    return changed


def check_frozen(session: TableSession, batch: Batch) -> None:
    """Raises `Broken` if a file that Spark has just loaded is not that of the batch any more.

    A file that is gone was deleted after it was read: a read of a missing file fails.
    """
    for name in changed_files(session.lake.store, batch):
        raise Broken(
            f"load of {session.key}: batch {batch.number} is in the table, but its file {name!r} "
            f"was replaced while Spark read it, so its rows may be of both contents. Compare them "
            f"with the file. If they differ, delete the rows with its name in _source_file, and "
            f"land it under another name"
        )


def damaged_files(lake: Lake, batch: Batch, landing: Landing, error: Exception) -> dict[str, str]:
    """The damaged files because of which Spark failed with `error`, with their problems.

    If Spark ended, each file that it may read is checked; otherwise, the file that the error names.

    Raises:
        Transient, Refused: storage does not give the content of a file.
    """
    files = [file for file in batch.files if may_be_by_spark(file, landing)]
    if not ended_spark(error):
        path = unquote(match[1]) if (match := _FAILED.search(str(error))) else ""
        root = f"{lake.settings.spark_root}/{batch.prefix}"
        files = [file for file in files if path.endswith(f"{root}{file.name}")]
    find_damage = _damaged_page if landing.format == "parquet" else _endless_line
    problems = dict[str, str]()
    for file in files:
        content = _StoredContent(lake.store, f"{batch.prefix}{file.name}", file.size_bytes)
        with suppress(FileNotFoundError):
            damage = find_damage(content)
            if damage is not None:
                problem = f"Spark cannot read it to its end ({damage}). Land an undamaged copy"
                problems[file.name] = problem
            elif _OTHER_CHECKSUM in str(error):
                folder, _, name = file.name.rpartition("/")
                checksums = f"{folder}/.{name}.crc".lstrip("/")
                problems[file.name] = (
                    f"Hadoop's checksums next to it, {checksums}, are those of other content. "
                    "Delete them. Then use `lakehouse quarantine retry`"
                )
    return problems


_READ_BYTES = 8 * MIB
_ROWS_AT_ONCE = 10_000


def _damaged_page(content: "_StoredContent") -> str | None:
    try:
        with pq.ParquetFile(
            pa.PythonFile(content, "r"), buffer_size=_READ_BYTES, page_checksum_verification=True
        ) as file:
            # One column at a time, because this takes little memory.
            for group in range(file.num_row_groups):
                for name in file.schema_arrow.names:
                    batches = file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=[name])
                    for _ in batches:
                        pass
    except (pa.ArrowException, OSError) as error:
        if content.error is not None:
            raise content.error from None
        return " ".join(str(error).split())
    return None


def _endless_line(content: "_StoredContent") -> str | None:
    line_bytes = 0
    while data := content.read(_READ_BYTES):
        parts = data.replace(b"\r", b"\n").split(b"\n")
        line_bytes += len(parts[0])
        if line_bytes > MAX_RECORD_BYTES:
            return f"a line has more than {MAX_RECORD_BYTES} bytes"
        if len(parts) > 1:
            line_bytes = len(parts[-1])
    return None


class _StoredContent:
    """The content of a stored file, for Arrow. `error` is the error of storage, if any."""

    closed = False

    def __init__(self, store: Store, name: str, size_bytes: int) -> None:
        self._store = store
        self._name = name
        self._size_bytes = size_bytes
        self._position = 0
        self.error: Exception | None = None

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        start = {SEEK_SET: 0, SEEK_CUR: self._position, SEEK_END: self._size_bytes}[whence]
        self._position = start + offset
        return self._position

    def read(self, count: int) -> bytes:
        count = min(count, self._size_bytes - self._position)
        if count <= 0:
            return b""
        try:
            data = self._store.read_part(self._name, self._position, count)
        except Exception as error:
            self.error = error
            raise
        self._position += len(data)
        return data

    def close(self) -> None:
        pass
