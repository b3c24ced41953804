"""The landed file to which `lakehouse quarantine retry` writes lines of JSON or CSV."""

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from lakehouse.declare.landing import Landing, retried_folder
from lakehouse.delta.column_names import field_names
from lakehouse.land.plan.records import earlier_names


class RetriedLine(NamedTuple):
    """The text of a quarantined line, and for CSV its fields that the schema does not name."""

    raw: str
    undeclared: str | None


def retried_path(table_key: str, landing: Landing, ids: Iterable[tuple[str, int, str]]) -> str:
    """The path of the file with these lines: source file, line, and digest of the source file.

    The same lines always give the same path.
    """
    digest = blake2b(repr(sorted(ids)).encode("utf-8", "surrogateescape"), digest_size=16)
    folder = f"{landing.prefix}{retried_folder(table_key)}"
    return f"{folder}{digest.hexdigest()}{landing.suffixes[0]}"


def csv_fields_text(landing: Landing) -> str | None:
    """The declared CSV fields in order, joined by the delimiter; `None` for other formats."""
    if not landing.records_are_csv:
        return None
    return landing.csv.delimiter.join(field_names(landing.schema))


def are_declared(fields: str | None, landing: Landing) -> bool:
    """Whether the fields of a quarantined CSV record are those of the declaration.

    Fields may have their earlier names. In other formats, a record has no fields recorded.
    """
    if fields is None or not landing.records_are_csv:
        return fields is None and not landing.records_are_csv
    present = earlier_names(landing)
    delimiter = landing.csv.delimiter
    names = [present.get(name, name) for name in fields.split(delimiter)]
    return delimiter.join(names) == csv_fields_text(landing)


def retried_text(lines: Sequence[RetriedLine], landing: Landing) -> str:
    """The text of a file with these lines, in the table's own format.

    The header of a CSV file names the declared fields, then all others.
    """
    if not landing.records_are_csv:
        return "".join(f"{line.raw}\n" for line in lines)
    others = [json.loads(line.undeclared or "{}") for line in lines]
    other_names = sorted({name for fields in others for name in fields})
    records = list[str]()
    if landing.csv.header:
        names = (*field_names(landing.schema), *other_names)
        records.append(landing.csv.delimiter.join(_quoted(name, landing) for name in names))
    for line, fields in zip(lines, others, strict=True):
        values = [_quoted(fields[name], landing) if name in fields else "" for name in other_names]
        records.append(landing.csv.delimiter.join([line.raw, *values]))
    return "".join(f"{_not_blank(record, landing)}\n" for record in records)


def _quoted(text: str, landing: Landing) -> str:
    quote = landing.csv.quote
    return f"{quote}{text.replace(quote, quote * 2)}{quote}"


def _not_blank(record: str, landing: Landing) -> str:
    """The record. A blank line would be ignored, so a record of one blank field is quoted."""
    if record.strip(" \t\v\f".replace(landing.csv.delimiter, "")):
        return record
    return _quoted(record, landing) if record else landing.null_value or _quoted("", landing)
