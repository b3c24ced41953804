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
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import (
    JSON_CONFS,
    PARSED,
    RAW,
    REASON,
    is_plain_line,
)
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.choose_files import FileRead, read_by_this_process
from lakehouse.land.plan.file_text import (
    BYTE_ORDER_MARK,
    csv_blanks,
    csv_fields,
    detect_format,
    other_mark,
    plain_csv_pattern,
    records_with_header,
)
from lakehouse.land.plan.json_records import plain_line_pattern
from lakehouse.land.plan.records import (
    MAX_RECORD_BYTES,
    MIB,
    NOT_UTF_8,
    UTF_8,
    CsvFields,
    Unreadable,
)
from lakehouse.land.spark import csv as spark_csv
from lakehouse.land.spark import json as spark_json
from lakehouse.land.spark.frozen_files import (
    LINE_COUNT,
    START,
    file_columns,
    file_of_spark,
    frozen_groups,
    origin_of,
    spark_path,
    why_not_frozen,
    with_frozen_files,
)
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.spark.frames import evaluated_once, literal_path
from lakehouse.spark.statements import quote
from lakehouse.spark.temporary_confs import session_confs
from lakehouse.store import Store

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
    present = file_of_spark(store, path, file)
    try:
        fields = _fields(store.read_part(path, 0, _START_BYTES), landing)
    except Unreadable as error:
        return FileRead(file=file, problem=str(error))
    if fields is None:
        expected = "a UTF-8 header on one line" if landing.records_are_csv else "an object in UTF-8"
        return read_by_this_process(file, landing, f"it does not begin with {expected}")
    return FileRead(file=present, has_header=fields.has_header, columns=fields.names)


def counted(
    session: TableSession, prefix: str, files: Sequence[LandedFile], reads: Mapping[str, FileRead]
) -> dict[str, FileRead | None]:
    """The files as Spark will read them, with the counts of their lines.

    `None` if this process has to read a file, because a line is not a whole record.
    """
    landing = session.table.landing
    root = session.lake.settings.spark_root
    lines = session.spark.read.text([literal_path(f"{root}/{prefix}{file.name}") for file in files])
    pattern = plain_line_pattern(landing.field_types)
    if landing.records_are_csv:
        pattern = plain_csv_pattern(landing)
    is_plain = is_plain_line(pattern)
    is_first = (F.col("_metadata.file_block_start") == 0) & (_row_of_task() == 0)
    is_whole = F.octet_length("value") <= MAX_RECORD_BYTES
    if landing.records_are_csv:
        is_whole &= spark_csv.is_whole_record(landing.csv)
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
        is_as_declared = not landing.records_are_csv or read.columns == landing.field_names
        results[file.name] = replace(
            read,
            file=replace(read.file, blocks=tuple(numbers)),
            record_count=sum(records for _, records in numbers),
            is_plain=is_as_declared and not any(total[each] for each in others),
        )
    return results


def text_lines(
    session: TableSession, batch: Batch, plain: Collection[str] = ()
) -> "list[DataFrame]":
    """Frames like `parse_lines.staged_lines`, already parsed, one for all files with one header.

    All lines of the files named `plain` are plain, so Spark parses them without a judgement. A
    statement that reads these files fails if a value does not fit its type.

    Raises:
        Broken: a file is gone, or is not the file of the batch any more.
    """

    def shape_of(file: LandedFile) -> tuple[CsvFields, bool]:
        start = session.lake.store.read_part(f"{batch.prefix}{file.name}", 0, _START_BYTES)
        fields = _fields(start, session.table.landing)
        if fields is None:
            raise Unreadable("it cannot be split into lines")
        return fields, file.name in plain

    return [
        _lines(session, batch, files, fields, is_plain=is_plain)
        for (fields, is_plain), files in frozen_groups(session, batch, shape_of).items()
    ]


def _fields(start: bytes, landing: Landing) -> CsvFields | None:
    """The fields of a file that begins with `start`; `None` if Spark cannot read the file.

    A JSON file counts as one without fields.

    Raises:
        Unreadable: the header is not accepted.
    """
    if detect_format(start) is not None or other_mark(start) is not None:
        return None
    if landing.encoding.lower() not in UTF_8:  # declared since the batch was planned
        return None
    text = start.removeprefix(BYTE_ORDER_MARK)
    if not landing.records_are_csv:
        is_array = text.lstrip().startswith(b"[")
        return None if is_array else CsvFields((), has_header=False)
    try:
        first = next(records_with_header(iter([text]), landing), None)
    except Unreadable:
        return None  # the record does not end in these bytes
    if first is None or first.line != 1 or b"\n" in first.content or b"\r" in first.content:
        return None
    fields = csv_fields(first, landing)
    is_clear = len({name.lower() for name in fields.names}) == len(fields.names)
    # Spark removes a byte order mark only from a header.
    has_mark = len(text) < len(start) and not fields.has_header
    return fields if is_clear and not has_mark else None


def _is_record(landing: Landing) -> "Column":
    """Whether a line is not blank."""
    return F.ltrim("value", F.lit(csv_blanks(landing.csv))) != ""


def _lines(
    session: TableSession,
    batch: Batch,
    files: Sequence[LandedFile],
    fields: CsvFields,
    *,
    is_plain: bool,
) -> "DataFrame":
    landing = session.table.landing
    root = session.lake.settings.spark_root
    paths = [literal_path(f"{root}/{batch.prefix}{file.name}") for file in files]
    shown = [*file_columns(), _row_of_task().alias(_ROW)]
    is_start = F.col(START) == 0
    row = F.col(_ROW)
    if is_plain:
        landed = _plain_rows(session.spark, paths, fields, landing).select("*", *shown)
        if fields.has_header:  # which is no row
            row = row + F.when(is_start, 1).otherwise(0)
    else:
        landed = session.spark.read.text(paths).select("value", *shown).where(_is_record(landing))
        if fields.has_header:
            landed = landed.where(~is_start | (row > 0))
    block = (F.col(START) / BLOCK_BYTES).cast("bigint")
    landed = with_frozen_files(session, batch, files, landed, block)
    other_block = F.raise_error("a block has other lines than were counted").cast("string")
    is_counted = F.coalesce(row < F.col(LINE_COUNT), F.lit(False))
    reason = why_not_frozen().when(~is_counted, other_block)
    origin = origin_of(row)
    if is_plain:
        parsed = F.struct(*map(quote, landing.field_names)).alias(PARSED)
        # A row that becomes a bad record is judged again, as a line.
        raw = F.lit(None).cast("string").alias(RAW)
        return landed.select(*origin, parsed, raw, evaluated_once(reason).alias(REASON))
    reason = reason.when(~F.is_valid_utf8("value"), NOT_UTF_8)
    if landing.records_are_csv:
        return spark_csv.judged_lines(landed, fields, landing, origin, reason)
    line = F.col("value")
    is_marked = is_start & (row == 0) & line.startswith(_MARK)
    text = F.when(is_marked, F.substr(line, F.lit(2))).otherwise(line)
    return spark_json.judged_lines(landed.withColumn("value", text), landing, origin, reason)


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


def _row_of_task() -> "Column":
    """The place of a row among the rows that its task reads, from 0."""
    return F.monotonically_increasing_id().bitwiseAND(_ROW_OF_TASK)
