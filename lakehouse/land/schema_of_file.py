"""Suggests the declaration of a landed file, by its own types or by its values."""

import codecs
from dataclasses import dataclass

from lakehouse.base.errors import Refused
from lakehouse.base.text import first_names
from lakehouse.land.plan.file_text import detect_format, text_chunks
from lakehouse.land.plan.records import MIB
from lakehouse.land.plan.schema_of_values import (
    SuggestedSchema,
    csv_schema,
    json_objects,
    json_schema,
    with_valid_names,
)
from lakehouse.land.read.contents import compression_of

# The values of this much text decide.
_READ_CHARACTERS = 32 * MIB
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSchema:
    """The schema of a file, its format and its encoding."""

    format: str
    schema: SuggestedSchema
    encoding: str = "utf-8"


def file_schema(name: str, data: bytes) -> FileSchema:
    """The schema of a file with these bytes.

    Raises:
        Refused: the file is damaged, has no record, or none of its fields can be a column.
    """
    try:
        found = _file_schema(name, data)
    except Refused:
        raise
    except Exception as error:  # the readers raise arbitrary exceptions for damaged bytes
        raise Refused(
            f"schema {name}: it cannot be read ({type(error).__name__}: {error}). Use an undamaged"
            " JSON, CSV, Parquet or Avro file"
        ) from error
    if not found.schema.types:
        names = first_names([repr(each[:80]) for each in found.schema.left_out])
        raise Refused(
            f"schema {name}: no field of it can be a column{f': {names}' if names else ''}. Use "
            "another file, or other names. Blanks do not separate fields"
        )
    return found


def _file_schema(name: str, data: bytes) -> FileSchema:
    content = detect_format(data)
    if content == "Parquet":
        from lakehouse.land.read.parquet_and_avro import parquet_types

        return FileSchema(format="parquet", schema=with_valid_names(parquet_types(data)))
    if content == "Avro":
        from lakehouse.land.read.parquet_and_avro import avro_types

        return FileSchema(format="avro", schema=with_valid_names(avro_types(data)))
    content = b"".join(text_chunks(data, compression_of(name, data)))
    text, encoding = _decoded(content)
    if text.lstrip()[:1] in ("{", "["):
        schema = json_schema(json_objects(text))
        return FileSchema(format="json", schema=schema, encoding=encoding)
    if len(text) > _READ_CHARACTERS:
        text = text[: text.rindex("\n", 0, _READ_CHARACTERS) + 1]
    return FileSchema(format="csv", schema=csv_schema(text), encoding=encoding)


def _decoded(content: bytes) -> tuple[str, str]:
    """The text, and its encoding: by the byte order mark, else UTF-8, else Windows' Latin-1."""
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return content.decode(encoding).removeprefix("\ufeff"), encoding
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace"), "cp1252"
