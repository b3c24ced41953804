"""The landed files of a batch as Spark reads them: known by path, size and time in each row."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote as percent_encoded

from lakehouse.core.ingest.batches import Batch, LandedFile
from lakehouse.engine.lake import Lake
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.store import StoredFile

if TYPE_CHECKING:
    from pyspark.sql import Column

_ENCODED = re.compile(
    r"[\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\"#%<>?\[\\\]^`{|}\x7f]"
)


class FrozenFiles:
    """Columns of the file from which a row is read. `metadata` names the column with Spark's own.

    - `path`, `digest`: of the file in the batch.
    - `blocks`: for each block of a text, the number of its first line and of its lines.
    - `reason`: a `when` without a value that fails if the file is not that of the batch any more.
      It belongs into the reason of a row, so that each statement that reads rows evaluates it.
    """

    def __init__(
        self,
        lake: Lake,
        batch: Batch,
        files: Sequence[tuple[LandedFile, StoredFile]],
        *,
        metadata: str = "_metadata",
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
        read_path = F.col(f"{metadata}.file_path")
        known = F.try_element_at(F.create_map(*entries), read_path)
        self.path = known["path"]
        self.digest = known["digest"]
        self.blocks = known["blocks"]
        is_same = (known["size_bytes"] == F.col(f"{metadata}.file_size")) & (
            known["modified"] == F.col(f"{metadata}.file_modification_time")
        )
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
