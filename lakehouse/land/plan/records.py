"""The records of a landed file. Each becomes a row or goes to quarantine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from lakehouse.declare.change_sources import Dms
from lakehouse.declare.landing import Landing
from lakehouse.declare.table import Table
from lakehouse.delta.columns import field_names

MIB = 1024 * 1024
# The maximum size of a record. Jackson, which parses JSON for Spark, accepts no text of more than
# 20,000,000 characters. Source: jackson-core, StreamReadConstraints.DEFAULT_MAX_STRING_LEN
MAX_RECORD_BYTES = 16 * MIB
# Only this many bytes of a record above the limit are kept, so that people can identify the record.
SHOWN_BYTES = 1_000
# The names of UTF-8, which needs no decoding.
UTF_8 = ("utf-8", "utf8")

NOT_JSON = "not JSON"
NOT_UTF_8 = "not UTF-8"
TOO_DEEP = "a value is nested too deeply"
# The beginning of the reason for a CSV record that cannot be split into its fields.
FIELD_COUNT = "it has more or fewer fields than the "
UNFIT = "a field does not fit the schema"


class Unreadable(Exception):
    """No record of a file can be read. The message gives the reason, and what to do."""


class Record(NamedTuple):
    """One record of a landed file.

    - `line`: the number of its first line, from 1.
    - `content`: its bytes without the line break. CSV is reduced to the declared fields. In JSON,
      some values of STRING fields are replaced with JSON strings (`with_texts`).
    - `problem`: why it cannot be a row; `None` if parsing decides.
    - `undeclared`: the fields that the schema does not name, as a JSON object. In CSV, `content`
      does not include them.
    - `event`: a text that is parsed instead of the content. It is the decoded event of a Debezium
      line (`null` for a tombstone), or a JSON record with present names in place of earlier ones.
    """

    line: int
    content: bytes
    problem: str | None = None
    undeclared: str | None = None
    event: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedLanding(Landing):
    """A landing whose files may also have fields under their earlier names.

    `earlier_names` maps each earlier name to the present name, from `Table.renamed`. A field is
    renamed when its record is staged. Therefore, later steps see only present names, and Spark
    parses each record once.
    """

    earlier_names: Mapping[str, str]


def with_renamed_fields(table: Table) -> Table:
    """The table with a landing that also accepts earlier names of its renamed columns."""
    return replace(table, source=with_earlier_names(table.landing, table.renamed))


def with_earlier_names(landing: Landing, renamed: Mapping[str, str]) -> Landing:
    """The landing for files that may still have the earlier names of the `renamed` columns."""
    if not renamed:
        return landing
    # Files have no derived columns, under any name.
    names = {old: new for old, new in renamed.items() if new not in landing.derived}
    if isinstance(landing.changes, Dms):
        # A renamed column's before-image has the new name, too.
        prefix = landing.changes.before_prefix
        declared = field_names(landing.schema)
        images = {f"{prefix}{old}": f"{prefix}{new}" for old, new in names.items()}
        names |= {old: new for old, new in images.items() if new in declared}
    declaration = {each.name: getattr(landing, each.name) for each in fields(Landing)}
    return RenamedLanding(**declaration, earlier_names=names)


def earlier_names(landing: Landing) -> Mapping[str, str]:
    """Maps the earlier name of each renamed field to its present name."""
    return landing.earlier_names if isinstance(landing, RenamedLanding) else {}


def present_names(names: Sequence[str], landing: Landing) -> list[str]:
    """The present names of a file's columns.

    Raises:
        Unreadable: the file has a column under two names.
    """
    earlier = earlier_names(landing)
    present = [earlier.get(name, name) for name in names]
    if len({*present}) < len(present):
        [(name, _)] = Counter(present).most_common(1)
        raise Unreadable(f"it has two names for {name}. Land the file with one of them")
    return present


def too_large(limit: int) -> Unreadable:
    """The error for a file that unpacks to more than `limit` bytes."""
    return Unreadable(
        f"it unpacks to more than {limit} bytes; land its records in smaller files, or raise "
        "Landing.max_file_bytes"
    )
