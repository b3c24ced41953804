"""Files of retried lines: JSON lines with the text and the origin of each quarantined line.

`lakehouse quarantine retry` lands such a file, and it is loaded like any other landed file. The
format of the table's other landed files does not matter.
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

    `raw` is the text of the line, `digest` the digest of the whole file, and `batch` the batch that
    read it. For CSV, `undeclared` holds the fields that the declaration did not name, and `fields`
    names the fields in `raw`. In other formats, both are `None`.
    """

    source_file: str
    line: int
    digest: str
    batch: int
    raw: str
    undeclared: str | None = None
    fields: str | None = None


def encode_lines(lines: Sequence[RetriedLine]) -> bytes:
    """The content of a file with these lines. It does not depend on the order of `lines`."""
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
    """The file's name below the landing prefix.

    The name contains the newest batch of the lines, and a digest of the file's content.
    """
    newest_batch = max(each.batch for each in lines)
    digest = blake2b(data, digest_size=16).hexdigest()
    return f"{retried_folder(table_key)}batch-{newest_batch}-{digest}.jsonl"


def csv_fields_text(landing: Landing) -> str | None:
    """The declared CSV fields in order, joined by the delimiter; `None` for other formats."""
    if not landing.records_are_csv:
        return None
    return landing.csv.delimiter.join(field_names(landing.schema))


def present_fields_text(fields: str | None, landing: Landing) -> str | None:
    """The fields of a quarantined CSV record, with present names in place of earlier ones."""
    if fields is None:
        return None
    present = earlier_names(landing)
    delimiter = landing.csv.delimiter
    return delimiter.join(present.get(name, name) for name in fields.split(delimiter))


def retried_records(data: bytes, landing: Landing) -> Iterator[Record]:
    """The records of a file of retried lines, numbered from 1.

    Raises:
        Unreadable: the file was changed, or its CSV records have other fields than the
            declaration. It is raised before the first record is returned.
    """
    lines = decode_lines(data)
    declared = csv_fields_text(landing)
    recorded = {each.fields for each in lines}
    others = sorted(
        str(fields) for fields in recorded if present_fields_text(fields, landing) != declared
    )
    if others:
        raise Unreadable(
            f"its records have the fields {others[0]}, but the declaration has {declared}. Restore "
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
    """The record, with a problem if it has a field under its earlier and its present name.

    This happens if the file's header had both names before the earlier one was declared in
    `Table.renamed`. The earlier name was then an undeclared field.
    """
    undeclared = json.loads(record.undeclared or "{}")
    for old, new in earlier_names(landing).items():
        if old in undeclared:
            return record._replace(problem=f"{TWO_NAMES}{old} and {new}")
    return record
