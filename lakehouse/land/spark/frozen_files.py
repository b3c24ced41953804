"""The landed files of a batch as Spark reads them: known by path, size and time in each row."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote as percent_encoded

from lakehouse.base.errors import Broken
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import DIGEST, ORIGIN
from lakehouse.land.plan.batches import Batch, LandedFile, files_of_spark
from lakehouse.land.plan.records import Unreadable
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.store import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What Spark shows of the file and the block from which it reads a row.
_READ_PATH = "_lakehouse_read_path"
_READ_SIZE = "_lakehouse_read_size"
_MODIFIED = "_lakehouse_modified"
START = "_lakehouse_block_start"
# The blocks of the batch's files.
_KNOWN_PATH = "_lakehouse_known_path"
_KNOWN_BLOCK = "_lakehouse_known_block"
_PATH = "_lakehouse_path"
_KNOWN_SIZE = "_lakehouse_known_size"
_KNOWN_MODIFIED = "_lakehouse_known_modified"
_FIRST_LINE = "_lakehouse_first_line"
LINE_COUNT = "_lakehouse_line_count"
_KNOWN = (
    f"{_KNOWN_PATH} STRING, {_KNOWN_BLOCK} BIGINT, {_PATH} STRING, {DIGEST} STRING, "
    f"{_KNOWN_SIZE} BIGINT, {_KNOWN_MODIFIED} BIGINT, {_FIRST_LINE} BIGINT, {LINE_COUNT} BIGINT"
)
_ENCODED = re.compile(
    r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\"#%<>?\[\\\]^`{|}\x7f]"
)

Shape = TypeVar("Shape")


def file_of_spark(store: Store, path: str, file: LandedFile) -> LandedFile:
    """The landed file as it is stored now, to be read by Spark.

    Raises:
        FileNotFoundError: the file is gone.
    """
    stored = store.stat(path)
    if stored is None:
        raise FileNotFoundError(path)
    digest = store.checksum(stored)
    return replace(file, size_bytes=stored.size_bytes, digest=digest, by_spark=True)


def frozen_groups(
    session: TableSession, batch: Batch, shape_of: Callable[[LandedFile], Shape]
) -> Mapping[Shape, list[LandedFile]]:
    """The files of a planned batch that Spark reads, by shape. They have their present times.

    `shape_of` may raise `Unreadable`.

    Raises:
        Broken: a file is gone, is not the file of the batch any more, or is unreadable.
    """
    store = session.lake.store
    groups = defaultdict[Shape, list[LandedFile]](list)
    for file in files_of_spark(batch):
        stored = store.stat(f"{batch.prefix}{file.name}")
        subject = f"load of {session.key}: batch {batch.number}, file {file.name!r}"
        if stored is None:
            raise Broken(f"{subject}: it is gone from {batch.prefix}. Put it back, and load again")
        if (store.checksum(stored), stored.size_bytes) != (file.digest, file.size_bytes):
            raise Broken(
                f"{subject}: it has changed since the batch was planned. Restore the old file, and "
                "land only new records, in a file with another name"
            )
        try:
            shape = shape_of(file)
        except Unreadable as error:
            raise Broken(
                f"{subject}: Spark could read it when the batch was planned, and now {error}. "
                "Restore the declaration, load the batch, and then change the declaration"
            ) from error
        groups[shape].append(replace(file, modified_ms=stored.modified_ms))
    return groups


def origin_of(row: "Column") -> "list[Column]":
    """The origin and the digest of a row. `row` is its place in its block, from 0."""
    path, line, landed_at = ORIGIN
    return [
        F.col(_PATH).alias(path),
        (F.col(_FIRST_LINE) + row).alias(line),
        F.col(_MODIFIED).alias(landed_at),
        F.col(DIGEST),
    ]


def file_columns() -> "list[Column]":
    """What Spark shows of the file from which it reads a row, for `with_frozen_files`."""
    return [
        F.expr(f"_metadata.file_path AS {_READ_PATH}"),
        F.expr(f"_metadata.file_size AS {_READ_SIZE}"),
        F.expr(f"_metadata.file_modification_time AS {_MODIFIED}"),
        F.expr(f"_metadata.file_block_start AS {START}"),
    ]


def with_frozen_files(
    session: TableSession,
    batch: Batch,
    files: Sequence[LandedFile],
    rows: "DataFrame",
    block: "Column | None" = None,
) -> "DataFrame":
    """Adds what is known of a row's file and block: `DIGEST`, `LINE_COUNT`, for `origin_of` more.

    The `files` are those of `frozen_groups`. The rows have the `file_columns`. `block` is the
    number of a row's block in a text.
    """
    root = session.lake.settings.spark_root
    known = list[tuple[str | int, ...]]()
    for file in files:
        path = f"{batch.prefix}{file.name}"
        frozen = (path, file.digest, file.size_bytes, file.modified_ms)
        first_line = 1
        for number, (line_count, _) in enumerate(file.blocks):
            place = (spark_path(f"{root}/{path}"), number)
            known.append((*place, *frozen, first_line, line_count))
            first_line += line_count
    frame = F.broadcast(session.spark.createDataFrame(known, _KNOWN))
    number = F.lit(0) if block is None else block
    is_same = (F.col(_READ_PATH) == F.col(_KNOWN_PATH)) & (number == F.col(_KNOWN_BLOCK))
    return rows.join(frame, is_same, "left")


def why_not_frozen() -> "Column":
    """A `when` without a value that fails if a row's file is not that of the batch any more.

    It belongs into the reason of a row, so that each statement that reads rows evaluates it.
    """
    is_same = (F.col(_KNOWN_SIZE) == F.col(_READ_SIZE)) & (
        F.timestamp_millis(_KNOWN_MODIFIED) == F.col(_MODIFIED)
    )
    changed = F.format_string("it was changed while it was loaded: %s", _READ_PATH)
    # The size of a file that is not in the batch is null.
    return F.when(~F.coalesce(is_same, F.lit(False)), F.raise_error(changed).cast("string"))


def spark_path(path: str) -> str:
    """A path or an address as Spark's `_metadata.file_path` shows it.

    Source: java.net.URI, "Character categories" and the constructors with several arguments
    """
    encoded = _ENCODED.sub(lambda match: percent_encoded(match[0], safe=""), path)
    return f"file:{encoded}" if path.startswith("/") else encoded
