"""Landed CSV and JSON files that Spark reads itself: their records never pass through this process.

1. This process reads the first bytes of a file: its header, if it has one.
2. Spark counts the lines of each block of the file. If a line is not a whole record, because a
   quoted field has a line break or a quote is not closed, the file is staged like a small one, or
   it is set aside if it is too large for that.
3. Executors read the blocks as lines. Expressions give the values of each line, and the reason why
   it cannot be loaded (`land/parse_lines.py`, `land/spark/json.py`).
4. `parse_lines` and the steps after it treat these rows like staged records.

**Safety properties** (tests in `test_text.py`)
- The number of lines is compared with the rows and rejected rows that Spark counts, before anything
  is written.
- A row's line is the count of the lines in earlier blocks and the row's place in its block. A block
  with more lines than were counted fails the statement that reads it.
- A file that changes fails each statement that reads it (`frozen_files`).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.declare.landing import Landing
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import (
    DIGEST,
    JSON_CONFS,
    ORIGIN,
    fields_of_start,
    is_whole_record,
    judged_csv,
)
from lakehouse.land.plan.batches import Batch, LandedFile, files_of_spark
from lakehouse.land.plan.choose_files import FileRead, read_by_this_process
from lakehouse.land.plan.file_text import (
    BYTE_ORDER_MARK,
    CsvFields,
    begins_with_other_mark,
    detect_format,
)
from lakehouse.land.plan.records import MAX_RECORD_BYTES, MIB, NOT_UTF_8, Unreadable
from lakehouse.land.spark import json as spark_json
from lakehouse.land.spark.frozen_files import (
    KNOWN,
    METADATA,
    FrozenFiles,
    frozen_file,
    not_readable_now,
    spark_path,
)
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import literal_path, struct_once
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import Store, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The first bytes of a file, in which its header must end.
_START_BYTES = 64 * 1024
BLOCK_BYTES = 32 * MIB
_ROW_OF_TASK = (1 << 33) - 1  # the bits of `monotonically_increasing_id` without the task
_MARK = BYTE_ORDER_MARK.decode()
_FILE = "_lakehouse_file"
_ROW = "_lakehouse_row"


def text_confs() -> dict[str, str]:
    """Settings with which each task reads one block, which begins at a multiple of its size.

    Source: Spark 4.2.0, FilePartition.maxSplitBytes and getFilePartitions
    """
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes")
    return dict.fromkeys(names, str(BLOCK_BYTES)) | JSON_CONFS


def read_by_spark(store: Store, path: str, file: LandedFile, landing: Landing) -> FileRead | None:
    """The file as Spark will read it, before its lines are counted (`counted`).

    `None` if this process has to read the file. A file that it must not read because of its size,
    either, has a problem.
    """
    stored = store.stat(path)
    if stored is None:
        raise FileNotFoundError(path)
    try:
        fields = _fields(store.read_part(path, 0, _START_BYTES), landing)
    except Unreadable as error:
        return FileRead(size_bytes=stored.size_bytes, digest="", problem=str(error))
    if fields is None:
        expected = "a UTF-8 header on one line" if landing.records_are_csv else "an object in UTF-8"
        return read_by_this_process(file, landing, f"it does not begin with {expected}")
    return FileRead(
        size_bytes=stored.size_bytes,
        digest=store.checksum(stored),
        by_spark=True,
        has_header=fields.has_header,
        columns=fields.names,
    )


def counted(
    session: TableSession, prefix: str, files: Sequence[LandedFile], reads: Mapping[str, FileRead]
) -> dict[str, FileRead | None]:
    """The files as Spark will read them, with the counts of their lines.

    `None` if this process has to read a file, because a line is not a whole record.
    """
    landing = session.table.landing
    root = session.lake.settings.spark_root
    lines = session.spark.read.text([literal_path(f"{root}/{prefix}{file.name}") for file in files])
    is_whole = F.octet_length("value") <= MAX_RECORD_BYTES
    if landing.records_are_csv:
        is_whole &= is_whole_record(landing.csv)
    counts = lines.groupBy("_metadata.file_path", "_metadata.file_block_start").agg(
        F.count("*"), F.count_if(_is_record(landing)), F.count_if(~is_whole)
    )
    with session_confs(session.spark, text_confs()):
        counts_by_path = defaultdict[str, dict[int, tuple[int, int, int]]](dict)
        for path, start, *numbers in counts.collect():
            counts_by_path[path][start // BLOCK_BYTES] = tuple(numbers)
    results = dict[str, FileRead | None]()
    for file in files:
        blocks = counts_by_path[spark_path(f"{root}/{prefix}{file.name}")]
        if any(parts for _, _, parts in blocks.values()):
            why = "it has line breaks inside quotes, a quote that is not closed, or a huge record"
            results[file.name] = read_by_this_process(file, landing, why)
            continue
        read = reads[file.name]
        numbers = [blocks.get(place, (0, 0, 0))[:2] for place in range(max(blocks, default=-1) + 1)]
        if read.has_header and numbers:
            numbers[0] = (numbers[0][0], numbers[0][1] - 1)
        record_count = sum(records for _, records in numbers)
        results[file.name] = replace(read, blocks=tuple(numbers), record_count=record_count)
    return results


def text_lines(session: TableSession, batch: Batch) -> "list[DataFrame]":
    """Frames like `parse_lines.staged_lines`, already parsed, one for all files with one header.

    Raises:
        Broken: a file is gone, or is not the file of the batch any more.
    """
    groups = defaultdict[CsvFields, list[tuple[LandedFile, StoredFile]]](list)
    for file in files_of_spark(batch):
        stored, fields = _checked(session, batch, file)
        groups[fields].append((file, stored))
    return [_lines(session, batch, files, fields) for fields, files in groups.items()]


def _fields(start: bytes, landing: Landing) -> CsvFields | None:
    """The fields of a file that begins with `start`; `None` if Spark cannot read the file.

    A JSON file counts as one without fields.

    Raises:
        Unreadable: the header is not accepted.
    """
    if detect_format(start) is not None or begins_with_other_mark(start):
        return None
    text = start.removeprefix(BYTE_ORDER_MARK)
    if landing.records_are_csv:
        return fields_of_start(text, landing, has_mark=len(text) < len(start))
    is_array = text.lstrip().startswith(b"[")
    return None if is_array else CsvFields((), has_header=False)


def _is_record(landing: Landing) -> "Column":
    """Whether a line is not blank."""
    blanks = " \t\v\f".replace(landing.csv.delimiter, "")
    return F.ltrim("value", F.lit(blanks)) != ""


def _checked(session: TableSession, batch: Batch, file: LandedFile) -> tuple[StoredFile, CsvFields]:
    """The file as it is stored now, and its fields, if it is still the file of the batch."""
    stored = frozen_file(session, batch, file)
    start = session.lake.store.read_part(stored.name, 0, _START_BYTES)
    try:
        fields = _fields(start, session.table.landing)
    except Unreadable as error:
        raise not_readable_now(session, batch, file, str(error)) from error
    if fields is None:
        raise not_readable_now(session, batch, file, "it cannot be split into lines")
    return stored, fields


def _lines(
    session: TableSession,
    batch: Batch,
    files: Sequence[tuple[LandedFile, StoredFile]],
    fields: CsvFields,
) -> "DataFrame":
    landing = session.table.landing
    root = session.lake.settings.spark_root
    paths = [literal_path(f"{root}/{batch.prefix}{file.name}") for file, _ in files]
    row = F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_OF_TASK))
    frozen = FrozenFiles(session.lake, batch, files)
    metadata = [F.col(f"_metadata.{name}").alias(name) for name in METADATA]
    file = struct_once([*metadata, frozen.known.alias(KNOWN)])
    landed = session.spark.read.text(paths).select("value", file.alias(_FILE), row.alias(_ROW))
    landed = landed.where(_is_record(landing))
    start = F.col(f"{_FILE}.file_block_start")
    if fields.has_header:
        landed = landed.where((start > 0) | (F.col(_ROW) > 0))
    if landing.records_are_csv:
        judged = judged_csv(landed, fields, landing)
    else:
        is_marked = (start == 0) & (F.col(_ROW) == 0) & F.startswith("value", F.lit(_MARK))
        text = F.when(is_marked, F.substr("value", F.lit(2))).otherwise(F.col("value"))
        judged = spark_json.judged_lines(landed.withColumn("value", text), landing)
    frozen = frozen.within(_FILE)
    block = F.try_element_at(frozen.blocks, (start / F.lit(BLOCK_BYTES)).cast("int") + 1)
    other_block = F.raise_error(F.lit("a block has other lines than were counted")).cast("string")
    reason = frozen.reason.when(
        ~F.coalesce(F.col(_ROW) < block["count"], F.lit(False)), other_block
    )
    reason = reason.when(~F.is_valid_utf8("value"), NOT_UTF_8)
    return judged.frame.select(
        frozen.path.alias(ORIGIN[0]),
        (block["first"] + F.col(_ROW)).alias(ORIGIN[1]),
        F.col(f"{_FILE}.file_modification_time").alias(ORIGIN[2]),
        frozen.digest.alias(DIGEST),
        judged.reason(reason),
        *judged.columns,
    )
