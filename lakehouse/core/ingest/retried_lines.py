"""Files of retried lines: JSON lines with the text and the origin of each quarantined line.

The format is the same for all formats of landed files. The files are loaded like any other landed
file.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

from lakehouse.core.changes.json_members import TWO_NAMES
from lakehouse.core.declaration.column_names import field_names, field_types
from lakehouse.core.declaration.landing import Landing, retried_folder
from lakehouse.core.ingest.json_records import json_record
from lakehouse.core.ingest.records import Record, Unreadable, earlier_names


@dataclass(frozen=True, slots=True, kw_only=True)
class RetriedLine:
    """A line of a landed file, as stored in the quarantine.

    `digest` is the digest of the whole file. For CSV, `undeclared` holds the fields that the
    declaration did not name, and `fields` names the fields in `raw`. Both are `None` in other
    formats.
    """

    source_file: str
    line: int
    digest: str
    batch: int
    raw: str
    undeclared: str | None = None
    fields: str | None = None


def encode_lines(lines: Sequence[RetriedLine]) -> bytes:
    """The content of a file with these lines. It does not depend on their order."""
    ordered = sorted(lines, key=lambda each: (each.source_file, each.line, each.digest))
    return "".join(f"{json.dumps(asdict(each))}\n" for each in ordered).encode()


def decode_lines(data: bytes) -> list[RetriedLine]:
    """The lines in a file that `encode_lines` wrote.

    Raises:
        Unreadable: the file was changed.
    """
    try:
        return [RetriedLine(**json.loads(text)) for text in data.splitlines()]
    except (ValueError, TypeError) as error:
        raise Unreadable(
            "it is not a file that `lakehouse quarantine retry` wrote "
            f"({type(error).__name__}). Restore it from a copy"
        ) from error


def retried_file_name(table_key: str, lines: Sequence[RetriedLine], data: bytes) -> str:
    """The file's name below the landing prefix: the newest batch of its lines, and a digest."""
    newest_batch = max(each.batch for each in lines)
    digest = blake2b(data, digest_size=16).hexdigest()
    return f"{retried_folder(table_key)}batch-{newest_batch}-{digest}.jsonl"


def csv_fields_text(landing: Landing) -> str | None:
    """The declared fields of a CSV record in order; `None` for formats that name their fields."""
    if not landing.records_are_csv:
        return None
    return landing.csv.delimiter.join(field_names(landing.schema))


def present_fields_text(fields: str | None, landing: Landing) -> str | None:
    """The fields of a quarantined CSV record, each by its present name."""
    if fields is None:
        return None
    present = earlier_names(landing)
    delimiter = landing.csv.delimiter
    return delimiter.join(present.get(name, name) for name in fields.split(delimiter))


def retried_records(data: bytes, landing: Landing) -> Iterator[Record]:
    """The records of a file of retried lines, numbered from 1.

    Raises:
        Unreadable: before the first record: the file was changed, or its CSV records have other
            fields than the declaration.
    """
    lines = decode_lines(data)
    declared = csv_fields_text(landing)
    found = {each.fields for each in lines}
    others = sorted(str(each) for each in found if present_fields_text(each, landing) != declared)
    if others:
        raise Unreadable(
            f"its records have the fields {others[0]}, and the declaration has {declared}. Restore "
            "the declaration, then use `lakehouse quarantine retry`"
        )
    types = dict(field_types(landing.schema))
    for number, line in enumerate(lines, start=1):
        content = line.raw.encode()
        if landing.records_are_csv:
            yield _csv_record(Record(number, content, undeclared=line.undeclared), landing)
        else:
            yield json_record(number, content, landing, types)


def _csv_record(record: Record, landing: Landing) -> Record:
    """The record, with a problem if it has an earlier name next to the present one.

    Its header had both, when the earlier name was not yet declared as one.
    """
    undeclared = json.loads(record.undeclared or "{}")
    for old, new in earlier_names(landing).items():
        if old in undeclared:
            return record._replace(problem=f"{TWO_NAMES}{old} and {new}")
    return record
