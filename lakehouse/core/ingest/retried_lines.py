"""Files of retried lines: JSON lines with the text and the origin of each quarantined line.

The format is the same for all formats of landed files. The files are loaded like any other landed
file.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b

from lakehouse.core.declaration.column_names import field_names, field_types
from lakehouse.core.declaration.landing import Landing, retried_folder
from lakehouse.core.ingest.json_records import json_record
from lakehouse.core.ingest.records import Record, Unreadable


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
            "it does not hold lines as `lakehouse quarantine retry` writes them "
            f"({type(error).__name__}). Use a copy to restore it"
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


def retried_records(data: bytes, landing: Landing) -> Iterator[Record]:
    """The records of a file of retried lines, numbered from 1.

    Raises:
        Unreadable: before the first record: the file was changed, or its CSV records have other
            fields than the declaration.
    """
    lines = decode_lines(data)
    declared = csv_fields_text(landing)
    others = sorted({str(each.fields) for each in lines if each.fields != declared})
    if others:
        raise Unreadable(
            f"its records have the fields {others[0]}, and the declaration has {declared}. Restore "
            "the declaration, then use `lakehouse quarantine retry`"
        )
    types = dict(field_types(landing.schema))
    for number, line in enumerate(lines, start=1):
        content = line.raw.encode()
        if landing.records_are_csv:
            yield Record(number, content, undeclared=line.undeclared)
        else:
            yield json_record(number, content, landing, types)
