"""Copies rows of a landed Parquet or Avro file to a new file with the same schema.

Values are copied as they are stored: no value passes through a type of Python.
"""

from collections.abc import Set
from io import BytesIO
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq


def copied_rows(source: IO[bytes], format: str, numbers: Set[int]) -> bytes:
    """A file of the same format with the rows of these numbers, from 1, in their order."""
    copy = _copied_parquet if format == "parquet" else _copied_avro
    return copy(source, numbers)


def _copied_parquet(source: IO[bytes], numbers: Set[int]) -> bytes:
    output = BytesIO()
    with pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
        columns = [file.schema.column(index) for index in range(file.metadata.num_columns)]
        # An INT96 is an instant, but Arrow reads it as a time without a zone.
        has_int96 = any(column.physical_type == "INT96" for column in columns)
        with pq.ParquetWriter(
            output, file.schema_arrow, use_deprecated_int96_timestamps=has_int96
        ) as writer:
            first = 1
            for group in range(file.num_row_groups):
                end = first + file.metadata.row_group(group).num_rows
                wanted = [number - first for number in range(first, end) if number in numbers]
                if wanted:
                    writer.write_table(file.read_row_group(group).take(pa.array(wanted)))
                first = end
    return output.getvalue()


def _copied_avro(source: IO[bytes], numbers: Set[int]) -> bytes:
    """Copies the bytes of the rows. The rows between them are read only to find where they end."""
    from fastavro import block_reader, schemaless_reader
    from fastavro.write import Writer

    blocks: Any = block_reader(source)
    metadata = {
        name: value for name, value in blocks.metadata.items() if not name.startswith("avro.")
    }
    output = BytesIO()
    writer: Any = Writer(output, blocks.writer_schema, codec="deflate", metadata=metadata)
    number = 0
    for block in blocks:
        content = block.bytes_.getvalue()
        copied = list[bytes]()
        for _ in range(block.num_records):
            number += 1
            start = block.bytes_.tell()
            schemaless_reader(block.bytes_, blocks.writer_schema, None)
            if number in numbers:
                copied.append(content[start : block.bytes_.tell()])
        if copied:
            block.bytes_ = BytesIO(b"".join(copied))
            block.num_records = len(copied)
            writer.write_block(block)
    writer.flush()
    return output.getvalue()
