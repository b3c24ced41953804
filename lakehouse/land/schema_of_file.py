"""Suggests the declaration of landed files, by their own types or by their values."""

import codecs
from collections.abc import Mapping
from dataclasses import replace

from lakehouse.base.errors import Refused
from lakehouse.base.text import first_names
from lakehouse.land.plan.file_text import detect_format, text_chunks
from lakehouse.land.plan.records import MIB, Unreadable
from lakehouse.land.plan.schema_of_values import (
    FileSchema,
    csv_schema,
    json_objects,
    json_schema,
    schema_of_types,
)
from lakehouse.land.staging import compression_of

# The values of this much text decide.
_READ_CHARACTERS = 32 * MIB
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def files_schema(files: Mapping[str, bytes]) -> FileSchema:
    """The schema of the files of one table, by their names. If they differ, the last one decides.

    Raises:
        Refused: a file is damaged, has no record, or none of its fields can be a column.
    """
    names = first_names([*files])
    try:
        found = _files_schema(files)
    except Unreadable as error:
        raise Refused(f"schema {names}: {error}") from error
    except Exception as error:  # the readers raise arbitrary exceptions for damaged bytes
        raise Refused(
            f"schema {names}: it cannot be read ({type(error).__name__}: {error}). Use an undamaged"
            " JSON, CSV, Parquet or Avro file"
        ) from error
    if not found.types:
        left_out = first_names([repr(each[:80]) for each in found.left_out])
        raise Refused(
            f"schema {names}: no field of it can be a column{f': {left_out}' if left_out else ''}. "
            "Use another file, or other names"
        )
    return found


def _files_schema(files: Mapping[str, bytes]) -> FileSchema:
    *_, last = files.values()
    content = detect_format(last)
    if content not in ("Parquet", "Avro"):
        return _text_schema(files)
    from lakehouse.land.decode import file_types

    format = content.lower()
    types = dict[str, str]()
    for data in files.values():
        types |= file_types(data, format)
    return schema_of_types(format, types)


def _text_schema(files: Mapping[str, bytes]) -> FileSchema:
    """The schema of JSON or CSV files."""
    decoded = [_decoded(name, data) for name, data in files.items()]
    texts = [text for text, _ in decoded]
    encoding = next((encoding for _, encoding in decoded if encoding != "utf-8"), "utf-8")
    *others, last = texts
    if last.lstrip()[:1] in ("{", "["):
        schema = json_schema([row for text in texts for row in json_objects(text)])
        return replace(schema, encoding=encoding)
    header, _, _ = last.partition("\n")
    text = "\n".join([last, *(text.removeprefix(header) for text in others)])
    if len(text) > _READ_CHARACTERS:
        text = text[: text.rindex("\n", 0, _READ_CHARACTERS) + 1]
    return replace(csv_schema(text), encoding=encoding)


def _decoded(name: str, data: bytes) -> tuple[str, str]:
    """The text, and its encoding: by the byte order mark, else UTF-8, else Windows' Latin-1."""
    content = b"".join(text_chunks(data, compression_of(name, data)))
    if binary := detect_format(content):
        raise Unreadable(
            f"{name} is a {binary} file. Use JSON, CSV, Parquet or Avro; save an Excel sheet as CSV"
        )
    for mark, encoding in _MARKS.items():
        if content.startswith(mark):
            return content.decode(encoding).removeprefix("\ufeff"), encoding
    try:
        return content.decode(), "utf-8"
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace"), "cp1252"
