"""The landed files of a batch as Spark reads them: known by path, size and time in each row."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote as percent_encoded

from lakehouse.base.errors import Broken
from lakehouse.lake.lake import TableSession
from lakehouse.land.parse_lines import DIGEST
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.store import Store, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What Spark shows of the file and the block from which it reads a row.
_READ_PATH = "_lakehouse_read_path"
_READ_SIZE = "_lakehouse_read_size"
MODIFIED = "_lakehouse_modified"
START = "_lakehouse_block_start"
_METADATA = {
    "file_path": _READ_PATH,
    "file_size": _READ_SIZE,
    "file_modification_time": MODIFIED,
    "file_block_start": START,
}
# The blocks of the batch's files.
_KNOWN_PATH = "_lakehouse_known_path"
_KNOWN_BLOCK = "_lakehouse_known_block"
PATH = "_lakehouse_path"
_KNOWN_SIZE = "_lakehouse_known_size"
_KNOWN_MODIFIED = "_lakehouse_known_modified"
FIRST_LINE = "_lakehouse_first_line"
LINE_COUNT = "_lakehouse_line_count"
_KNOWN = (
    f"{_KNOWN_PATH} STRING, {_KNOWN_BLOCK} BIGINT, {PATH} STRING, {DIGEST} STRING, "
    f"{_KNOWN_SIZE} BIGINT, {_KNOWN_MODIFIED} BIGINT, {FIRST_LINE} BIGINT, {LINE_COUNT} BIGINT"
)
_ENCODED = re.compile(
    r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\"#%<>?\[\\\]^`{|}\x7f]"
)


def planned_read(store: Store, path: str, file: LandedFile) -> FileRead:
    """A file of a planned batch that Spark read. A change shows in the digest of the result."""
    stored = store.stat(path)
    if stored is None:
        raise FileNotFoundError(path)
    return FileRead(
        size_bytes=stored.size_bytes,
        digest=store.checksum(stored),
        record_count=sum(records for _, records in file.blocks),
        by_spark=True,
        blocks=file.blocks,
    )


def frozen_file(session: TableSession, batch: Batch, file: LandedFile) -> StoredFile:
    """The file as it is stored now.

    Raises:
        Broken: it is gone, or is not the file of the batch any more.
    """
    store = session.lake.store
    stored = store.stat(f"{batch.prefix}{file.name}")
    subject = f"load of {session.key}: batch {batch.number}, file {file.name!r}"
    if stored is None:
        raise Broken(f"{subject}: it is gone from {batch.prefix}. Put it back, and load again")
    if (store.checksum(stored), stored.size_bytes) != (file.digest, file.size_bytes):
        raise Broken(
            f"{subject}: it has changed since the batch was planned. Restore the old file, and "
            "land only new records, in a file with another name"
        )
    return stored


def not_readable_now(session: TableSession, batch: Batch, file: LandedFile, why: str) -> Broken:
    """The error for a planned file that Spark cannot read with the present declaration."""
    return Broken(
        f"load of {session.key}: batch {batch.number}, file {file.name!r}: Spark could read it "
        f"when the batch was planned, and now {why}. Restore the declaration, load the batch, and "
        "then change the declaration"
    )


def file_columns() -> "list[Column]":
    """What Spark shows of the file from which it reads a row, for `with_frozen_files`."""
    return [F.col(f"_metadata.{name}").alias(alias) for name, alias in _METADATA.items()]


def with_frozen_files(
    session: TableSession,
    batch: Batch,
    files: Sequence[tuple[LandedFile, StoredFile]],
    rows: "DataFrame",
    block: "Column | None" = None,
) -> "DataFrame":
    """Adds the columns `PATH`, `DIGEST`, `FIRST_LINE` and `LINE_COUNT` of a row's file and block.

    The rows have the `file_columns`. `block` is the number of a row's block in a text.
    """
    root = session.lake.settings.spark_root
    known = list[tuple[str | int, ...]]()
    for file, stored in files:
        path = f"{batch.prefix}{file.name}"
        frozen = (path, file.digest, file.size_bytes, stored.modified_ms)
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
        F.timestamp_millis(_KNOWN_MODIFIED) == F.col(MODIFIED)
    )
    changed = F.concat(F.lit("it was changed while it was loaded: "), F.col(_READ_PATH))
    # The size of a file that is not in the batch is null.
    return F.when(~F.coalesce(is_same, F.lit(False)), F.raise_error(changed).cast("string"))


def spark_path(path: str) -> str:
    """A path or an address as Spark's `_metadata.file_path` shows it.

    Source: java.net.URI, "Character categories" and the constructors with several arguments
    """
    encoded = _ENCODED.sub(lambda match: percent_encoded(match[0], safe=""), path)
    return f"file:{encoded}" if path.startswith("/") else encoded
