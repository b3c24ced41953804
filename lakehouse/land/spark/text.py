"""Landed CSV and JSON files that Spark reads itself: their records never pass through this process.

1. This process reads the first bytes of a file: its header, if it has one.
2. Spark counts the lines of each block of the file. If a line is not a whole record, because a
   quoted field has a line break, or a quote is not closed or not doubled, the file is staged like a
   small one, or it is set aside if it is too large for that.
3. If all lines are plain (`plain_csv_pattern`, `plain_line_pattern`), Spark's CSV or JSON reader
   parses the file. If it fails, step 4 follows.
4. Executors read the blocks as lines. Expressions give the values of each line, and the reason why
   it cannot be loaded (`land/parse_lines.py`, `land/spark/json.py`).
5. `parse_lines` and the steps after it treat these rows like staged records.

**Safety properties** (tests in `test_text.py`)
- The number of lines is compared with the rows and rejected rows that Spark counts, before anything
  is written.
- A row's line is the count of the lines in earlier blocks and the row's place in its block. A block
  with more lines than were counted fails the statement that reads it.
- A plain line gives the same values without a judgement as with it.
- A file that changes fails each statement that reads it (`frozen_files`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakehouse.declare.landing import Landing
from lakehouse.delta.columns import field_names, field_types
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import (
    DIGEST,
    JSON_CONFS,
    ORIGIN,
    PARSED,
    RAW,
    JudgedLines,
    fields_of_start,
    is_plain_line,
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
    plain_csv_pattern,
)
from lakehouse.land.plan.json_records import plain_line_pattern
from lakehouse.land.plan.records import MAX_RECORD_BYTES, MIB, NOT_UTF_8, Unreadable
from lakehouse.land.spark import json as spark_json
from lakehouse.land.spark.frozen_files import (
    FIRST_LINE,
    LINE_COUNT,
    MODIFIED,
    PATH,
    START,
    file_columns,
    frozen_file,
    not_readable_now,
    spark_path,
    why_not_frozen,
    with_frozen_files,
)
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import literal_path
from lakehouse.spark.statements import quote
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import Store, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# The first bytes of a file, in which its header must end.
_START_BYTES = 64 * 1024
BLOCK_BYTES = 32 * MIB
_ROW_OF_TASK = (1 << 33) - 1  # the bits of `monotonically_increasing_id` without the task
_MARK = BYTE_ORDER_MARK.decode()
_ROW = "_lakehouse_row"
# The kinds of lines. `_FIRST` is a file's first line, if it is of no other kind than `_OTHER`.
_PLAIN, _BLANK, _PART, _FIRST, _OTHER = range(5)


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
    is_plain = is_plain_line(_plain_pattern(landing))
    is_first = (F.col("_metadata.file_block_start") == 0) & (_row_of_task() == 0)
    is_whole = F.octet_length("value") <= MAX_RECORD_BYTES
    if landing.records_are_csv:
        is_whole &= is_whole_record(landing.csv)
    kind = F.when(is_plain, _PLAIN).when(~_is_record(landing), _BLANK).when(~is_whole, _PART)
    kind = kind.when(is_first, _FIRST).otherwise(_OTHER)
    counts = lines.select("_metadata.file_path", "_metadata.file_block_start", kind.alias("kind"))
    counts = counts.groupBy(*counts.columns).count()
    with session_confs(session.spark, text_confs()):
        rows = counts.collect()
    counts_by_path = defaultdict[str, dict[int, Counter[int]]](lambda: defaultdict(Counter[int]))
    for path, start, kind_of_line, count in rows:
        counts_by_path[path][start // BLOCK_BYTES][kind_of_line] = count
    results = dict[str, FileRead | None]()
    for file in files:
        blocks = counts_by_path[spark_path(f"{root}/{prefix}{file.name}")]
        total = sum(blocks.values(), Counter[int]())
        if total[_PART]:
            why = (
                "it has line breaks inside quotes, a quote that is not closed or not doubled, or a "
                "huge record"
            )
            results[file.name] = read_by_this_process(file, landing, why)
            continue
        if not total:  # a file of this size has a line
            results[file.name] = read_by_this_process(file, landing, "Spark finds no line in it")
            continue
        read = reads[file.name]
        numbers = list[tuple[int, int]]()
        for place in range(max(blocks, default=-1) + 1):
            line_count = blocks[place].total()
            numbers.append((line_count, line_count - blocks[place][_BLANK]))
        others = [_BLANK, _OTHER] if read.has_header else [_BLANK, _FIRST, _OTHER]
        if read.has_header and numbers:
            numbers[0] = (numbers[0][0], numbers[0][1] - 1)
        is_as_declared = not landing.records_are_csv or read.columns == field_names(landing.schema)
        results[file.name] = replace(
            read,
            blocks=tuple(numbers),
            record_count=sum(records for _, records in numbers),
            is_plain=is_as_declared and not any(total[each] for each in others),
        )
    return results


def _plain_pattern(landing: Landing) -> str | None:
    if landing.records_are_csv:
        return plain_csv_pattern(landing)
    return plain_line_pattern(dict(field_types(landing.schema)))


def text_lines(
    session: TableSession, batch: Batch, plain: Collection[str] = ()
) -> "list[DataFrame]":
    """Frames like `parse_lines.staged_lines`, already parsed, one for all files with one header.

    All lines of the files named `plain` are plain, so Spark parses them without a judgement. A
    statement that reads these files fails if a value does not fit its type.

    Raises:
        Broken: a file is gone, or is not the file of the batch any more.
    """
    groups = defaultdict[tuple[CsvFields, bool], list[tuple[LandedFile, StoredFile]]](list)
    for file in files_of_spark(batch):
        stored, fields = _checked(session, batch, file)
        groups[fields, file.name in plain].append((file, stored))
    return [
        _lines(session, batch, files, fields, is_plain=is_plain)
        for (fields, is_plain), files in groups.items()
    ]


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
    *,
    is_plain: bool,
) -> "DataFrame":
    landing = session.table.landing
    root = session.lake.settings.spark_root
    paths = [literal_path(f"{root}/{batch.prefix}{file.name}") for file, _ in files]
    origin = [*file_columns(), _row_of_task().alias(_ROW)]
    is_start = F.col(START) == 0
    row = F.col(_ROW)
    if is_plain:
        landed = _plain_rows(session.spark, paths, fields, landing).select("*", *origin)
        if fields.has_header:  # which is no row
            row = row + F.when(is_start, 1).otherwise(0)
        judged = JudgedLines(landed, (), _plain_columns(landing))
    else:
        landed = session.spark.read.text(paths).select("value", *origin)
        landed = landed.where(_is_record(landing))
        if fields.has_header:
            landed = landed.where(~is_start | (row > 0))
        judged = _judged(landed, fields, landing)
    block = (F.col(START) / F.lit(BLOCK_BYTES)).cast("bigint")
    frame = with_frozen_files(session, batch, files, judged.frame, block)
    other_block = F.raise_error(F.lit("a block has other lines than were counted")).cast("string")
    is_counted = F.coalesce(row < F.col(LINE_COUNT), F.lit(False))
    reason = why_not_frozen().when(~is_counted, other_block)
    if not is_plain:
        reason = reason.when(~F.is_valid_utf8("value"), NOT_UTF_8)
    return frame.select(
        F.col(PATH).alias(ORIGIN[0]),
        (F.col(FIRST_LINE) + row).alias(ORIGIN[1]),
        F.col(MODIFIED).alias(ORIGIN[2]),
        DIGEST,
        judged.reason(reason),
        *judged.columns,
    )


def _judged(landed: "DataFrame", fields: CsvFields, landing: Landing) -> JudgedLines:
    if landing.records_are_csv:
        return judged_csv(landed, fields, landing)
    is_first = (F.col(START) == 0) & (F.col(_ROW) == 0)
    is_marked = is_first & F.startswith("value", F.lit(_MARK))
    text = F.when(is_marked, F.substr("value", F.lit(2))).otherwise(F.col("value"))
    return spark_json.judged_lines(landed.withColumn("value", text), landing)


def _plain_rows(
    spark: "SparkSession", paths: Sequence[str], fields: CsvFields, landing: Landing
) -> "DataFrame":
    """The declared columns of files with only plain lines."""
    reader = spark.read.schema(landing.schema).options(
        mode="FAILFAST", enableDateTimeParsingFallback="false"
    )
    if not landing.records_are_csv:
        return reader.json([*paths])
    csv = landing.csv
    return reader.csv(
        [*paths], sep=csv.delimiter, quote=csv.quote, escape=csv.quote, header=fields.has_header
    )


def _plain_columns(landing: Landing) -> "list[Column]":
    names = [quote(name) for name in field_names(landing.schema)]
    # A row that becomes a bad record is judged again, as a line.
    return [F.struct(*names).alias(PARSED), F.lit(None).cast("string").alias(RAW)]


def _row_of_task() -> "Column":
    """The place of a row among the rows that its task reads, from 0."""
    return F.monotonically_increasing_id().bitwiseAND(F.lit(_ROW_OF_TASK))
