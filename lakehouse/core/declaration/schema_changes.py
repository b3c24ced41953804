"""Differences between the declared columns and the columns of the existing table.

A column that the table lacks is added. An `Overwrite` replaces the schema together with the rows,
so it allows any difference. Every other difference is refused, and the table is not changed.

**Safety properties**
- No column is removed, renamed or given another type, unless the same commit replaces all rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakehouse.core.delta.snapshot import Column, Snapshot
from lakehouse.core.errors import Refused

# Endings of messages about a table that cannot be written as declared.
NEW_KEY = "declare the table under a new key, which leaves this one as it is"
UNCHANGED = (
    "Nothing was written. Either restore the declaration, or declare the table under a new key"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewColumn:
    """A column to add to a table after another one, or first if `after` is `None`."""

    column: Column
    after: str | None


def new_columns(
    declared: Sequence[Column], partition_by: Sequence[str], snapshot: Snapshot
) -> tuple[NewColumn, ...]:
    """The declared columns that the table lacks, in the declared order.

    Raises:
        Refused: the declaration and the table differ in another way.
    """
    there = {column.name: column for column in snapshot.columns}
    taken = {name.lower() for name in there}
    places = zip(declared, [None, *declared], strict=False)
    added = tuple(
        NewColumn(column=column, after=None if before is None else before.name)
        for column, before in places
        if column.name.lower() not in taken
    )
    names = {each.column.name for each in added}
    rest = [column for column in declared if column.name not in names]
    if found := differences(rest, partition_by, snapshot):
        raise Refused(
            f"write of {snapshot.table}: the declaration and the table differ: {'; '.join(found)}."
            f" {UNCHANGED}"
        )
    return added


def differences(
    declared: Sequence[Column], partition_by: Sequence[str], snapshot: Snapshot
) -> tuple[str, ...]:
    """The differences between the declaration and the table, in words; column order is ignored."""
    wanted, there = _types(declared), _types(snapshot.columns)
    found = [
        f"{name} is {_declared_as(wanted.get(name))} and {_there_as(there.get(name))} in the table"
        for name in sorted(wanted.keys() | there.keys())
        if wanted.get(name) != there.get(name)
    ]
    if tuple(partition_by) != snapshot.partition_columns:
        found.append(
            f"the declared partitioning is by {_names(partition_by)}, that of the table by"
            f" {_names(snapshot.partition_columns)}"
        )
    return tuple(found)


def _types(columns: Sequence[Column]) -> Mapping[str, str]:
    return {column.name: column.type for column in columns}


def _declared_as(type_: str | None) -> str:
    return "not declared" if type_ is None else f"declared as {type_}"


def _there_as(type_: str | None) -> str:
    return "absent" if type_ is None else type_


def _names(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"
