"""Refuses rebuilds that are impossible according to the declaration or the table's log.

The messages name an alternative.
"""

from lakehouse.core.declaration.adopted import Adopted
from lakehouse.core.declaration.write_modes import Append, History, Merge
from lakehouse.core.delta.snapshot import Snapshot
from lakehouse.core.errors import Refused
from lakehouse.core.evolution.column_sources import is_cast
from lakehouse.core.evolution.column_types import type_change
from lakehouse.core.evolution.declaration_changes import compare
from lakehouse.core.evolution.plan import NEW_KEY, Kind
from lakehouse.core.evolution.rebuild import RebuildRequest
from lakehouse.core.text import first_names


def refuse_impossible(request: RebuildRequest, snapshot: Snapshot) -> None:
    """Raises `Refused` if the log or the declaration shows that the rebuild is impossible."""
    table = request.table
    rebuild = f"rebuild of {table.key}"
    if isinstance(table.write, Adopted):
        raise Refused(f"{rebuild}: other programs write it, at {table.write.uri}. Use their tools")
    if request.source == "inputs":
        if table.source is not None:
            raise Refused(
                f"{rebuild}: it is loaded from landed files, and not computed from inputs. Use "
                f"`lakehouse rebuild {table.key}`, which writes its own rows again"
            )
        return
    for change in compare(table, None, snapshot).of(Kind.LANDED_WRITE_CHANGED):
        raise Refused(f"{rebuild}: {change.sentence}. Either restore the declaration, or {NEW_KEY}")
    _refuse_other_keys(request, snapshot)
    _refuse_unusable_columns(request, snapshot)


def _refuse_other_keys(request: RebuildRequest, snapshot: Snapshot) -> None:
    """Refuses new keys, and new types of keys, for landed change data. New names are accepted."""
    write = request.table.write
    if request.table.source is None or not isinstance(write, Merge | History):
        return
    for each in request.columns:
        is_key = each.column.name in write.keys
        if is_key and (each.source is None or is_cast(each, snapshot)):
            raise Refused(
                f"rebuild of {request.table.key}: {each.column.name} is a key of its change data, "
                "and deleted keys are stored under its existing type. Either restore the "
                f"declaration, or {NEW_KEY}"
            )


def _refuse_unusable_columns(request: RebuildRequest, snapshot: Snapshot) -> None:
    """Refuses columns that the rebuilt table cannot have.

    These are columns whose source the table lacks, values that cannot be converted, and partition
    columns that are not among the columns.
    """
    rebuild = f"rebuild of {request.table.key}"
    types = {column.name: column.type for column in snapshot.columns}
    for each in request.columns:
        if each.source is None:
            continue
        old_type = types.get(each.source)
        new_type = each.column.type
        if old_type is None:
            names = first_names([*types], most=20)
            raise Refused(f"{rebuild}: the table has no column {each.source}. Use one of {names}")
        if not type_change(old_type, new_type).is_possible:
            raise Refused(
                f"{rebuild}: {each.source} is {old_type} and cannot become {new_type}. Either "
                "restore its type, or add a column of the new type"
            )
    write = request.table.write
    if not isinstance(write, Append) or not request.columns:
        return
    names = {each.column.name for each in request.columns}
    for name in write.partition_by:
        if name not in names:
            raise Refused(
                f"{rebuild}: the table is to be partitioned by {name}, which is not one of its "
                "columns. Use a column of the table"
            )
