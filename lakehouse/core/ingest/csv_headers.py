"""Which headers of CSV files are taken, those that cannot be misread, and what is read below them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from lakehouse.core.declaration.landing import Landing
from lakehouse.core.ingest.csv_fields import csv_fields, csv_value
from lakehouse.core.ingest.undeclared import others_in_row

if TYPE_CHECKING:
    from lakehouse.core.ingest.records import Record


def is_header(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a file's first record names columns, perhaps in another order or case, and is no row."""
    found, columns = ([name.lower() for name in each] for each in (names, wanted))
    return found[:1] == columns[:1] or {*columns[1:]} <= {*found} or {*found} <= {*columns}


def others_in_header(
    names: Sequence[str], fields: Sequence[str], *, are_refused: bool = False
) -> dict[int, str] | None:
    """The places of a header's undeclared names; `None` where they are refused, or the declared ones are not in order, or a name twice."""
    others = {place: name for place, name in enumerate(names) if name not in fields}
    is_in_order = (
        [name for name in names if name in fields] == [*fields]
        and len({*names}) == len(names)
        and "" not in names
    )
    return others if is_in_order and not (others and are_refused) else None


def lacks_columns_alone(names: Sequence[str], fields: Sequence[str], needed: Iterable[str]) -> bool:
    """Whether a header differs from the declared `fields` by absent ones alone, so that those are null in its file.

    Each of its names is declared, in the declared order. It has all that are `needed`, and at least half of the fields: a file with fewer
    may belong to another table. An unknown name next to an absent one may be a misspelling, so such a header is not taken.
    """
    is_in_order = [*names] == [name for name in fields if name in names]
    return is_in_order and {*needed} <= {*names} and 2 * len(names) >= len(fields)


def header_advice(names: Sequence[str], columns: Sequence[str], landing: Landing) -> str:
    """How to have a file loaded whose header is not taken."""
    absent = [name for name in columns if name not in names]
    unknown = [name for name in names if name not in columns]
    is_known_in_part = len(unknown) < len(names)
    if absent and unknown and is_known_in_part and landing.new_columns != "refuse":
        return (
            f"; it lacks {', '.join(absent)} and has {', '.join(unknown)}, which may be the same. Either land the file with the declared "
            f"name, or declare {', '.join(unknown)}, too"
        )
    if needed := [name for name in absent if name in landing.required]:
        return f"; it lacks the required {', '.join(needed)}"
    return ""


def declared_alone(
    records: Iterator["Record"], names: Sequence[str], columns: Sequence[str], landing: Landing
) -> Iterator["Record"]:
    """The records of a file with a header of these names, each with all declared `columns` and no other field in its bytes.

    A column that the header lacks is null.
    """
    places = {name: place for place, name in enumerate(names)}
    others = {name: place for name, place in places.items() if name not in columns}
    null = (landing.null_value or "") if landing.keeps_empty_texts else ""
    for record in records:
        fields = csv_fields(record.content, landing)
        if len(fields) != len(names):
            yield record._replace(
                problem=f"it has {len(fields)} field(s), the header of its file has {len(names)}"
            )
            continue
        kept = landing.delimiter.encode().join(
            fields[places[name]] if name in places else null.encode() for name in columns
        )
        values = {name: csv_value(fields[place], landing) for name, place in others.items()}
        yield record._replace(content=kept, undeclared=others_in_row(values, {}))
