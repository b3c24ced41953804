"""The landed files of a batch as Spark reads them: known by path, size and time in each row."""

import re
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING
from urllib.parse import quote as percent_encoded

from lakehouse.base.errors import Broken
from lakehouse.lake.lake import Lake, TableSession
from lakehouse.land.plan.batches import Batch, LandedFile
from lakehouse.land.plan.choose_files import FileRead
from lakehouse.spark import functions as F  # noqa: N812
from lakehouse.store import Store, StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column

# The columns of Spark that a struct needs (`FrozenFiles.within`), and its column of the known file.
METADATA = ("file_path", "file_size", "file_block_start", "file_modification_time")
KNOWN = "known"
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


class FrozenFiles:
    """Columns of the file from which a row is read.

    - `known`: the file in the batch, as a struct; null for another one.
    - `path`, `digest`: of the file in the batch.
    - `blocks`: for each block of a text, the number of its first line and of its lines.
    - `reason`: a `when` without a value that fails if the file is not that of the batch any more.
      It belongs into the reason of a row, so that each statement that reads rows evaluates it.
    """

    def __init__(
        self, lake: Lake, batch: Batch, files: Sequence[tuple[LandedFile, StoredFile]]
    ) -> None:
        entries = list["Column"]()
        for file, stored in files:
            path = f"{batch.prefix}{file.name}"
            frozen = F.struct(
                F.lit(path).alias("path"),
                F.lit(file.digest).alias("digest"),
                F.lit(file.size_bytes).cast("bigint").alias("size_bytes"),
                F.timestamp_millis(F.lit(stored.modified_ms)).alias("modified"),
                _blocks(file).alias("blocks"),
            )
            entries += [F.lit(spark_path(f"{lake.settings.spark_root}/{path}")), frozen]
        self.known = F.try_element_at(F.create_map(*entries), F.col("_metadata.file_path"))
        self._name_columns("_metadata")

    def within(self, struct: str) -> "FrozenFiles":
        """The same columns, read from a struct that has `METADATA` and `KNOWN`."""
        copied = copy(self)
        copied.known = F.col(f"{struct}.{KNOWN}")
        copied._name_columns(struct)
        return copied

    def _name_columns(self, metadata: str) -> None:
        self.path = self.known["path"]
        self.digest = self.known["digest"]
        self.blocks = self.known["blocks"]
        is_same = (self.known["size_bytes"] == F.col(f"{metadata}.file_size")) & (
            self.known["modified"] == F.col(f"{metadata}.file_modification_time")
        )
        read_path = F.col(f"{metadata}.file_path")
        changed = F.concat(F.lit("it was changed while it was loaded: "), read_path)
        self.reason = F.when(
            ~F.coalesce(is_same, F.lit(False)), F.raise_error(changed).cast("string")
        )


def spark_path(path: str) -> str:
    """A path or an address as Spark's `_metadata.file_path` shows it.

    Source: java.net.URI, "Character categories" and the constructors with several arguments
    """
    encoded = _ENCODED.sub(lambda match: percent_encoded(match[0], safe=""), path)
    return f"file:{encoded}" if path.startswith("/") else encoded


def _blocks(file: LandedFile) -> "Column":
    blocks = list["Column"]()
    first_line = 1
    for line_count, _ in file.blocks:
        numbers = F.struct(F.lit(first_line).alias("first"), F.lit(line_count).alias("count"))
        blocks.append(numbers)
        first_line += line_count
    return F.array(*blocks).cast("array<struct<first: bigint, count: bigint>>")
