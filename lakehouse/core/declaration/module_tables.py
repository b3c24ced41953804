"""Collects the tables that modules declare, inputs before their readers."""

from collections.abc import Iterable
from itertools import permutations
from types import ModuleType

from lakehouse.core.declaration.table import Table
from lakehouse.core.errors import Refused


def module_tables(modules: Iterable[ModuleType]) -> dict[str, Table]:
    """Every `Table` at the top level of the modules, by key, inputs before their readers.

    Raises:
        Refused: two tables have the same key, an input is in none of the modules, or the load of
            one table deletes files that another one reads.
    """
    found: dict[str, Table] = {}
    for module in modules:
        for value in vars(module).values():
            if isinstance(value, Table) and found.setdefault(value.key, value) is not value:
                raise Refused(
                    f"Table.key {value.key!r} is declared twice, the second time in"
                    f" {module.__name__}. Use another key."
                )
    _check_shared_landings(found)
    ordered: dict[str, Table] = {}
    for key in sorted(found):
        _add_after_inputs(found[key], found=found, ordered=ordered)
    return ordered


def _check_shared_landings(found: dict[str, Table]) -> None:
    """Refuses `after_load` other than "keep" if another table also reads the files."""
    landed = [(key, each.source) for key, each in sorted(found.items()) if each.source is not None]
    for (key, source), (other_key, other) in permutations(landed, 2):
        overlaps = source.prefix.startswith(other.prefix) or other.prefix.startswith(source.prefix)
        if overlaps and source.after_load != "keep":
            raise Refused(
                f"Table {key}: after_load is {source.after_load!r}, but {other_key} also reads"
                f" {other.prefix}. Either use 'keep', or prefixes that do not contain each other."
            )


def _add_after_inputs(wanted: Table, *, found: dict[str, Table], ordered: dict[str, Table]) -> None:
    if wanted.key in ordered:
        return
    for source in wanted.inputs:
        if found.get(source.key) is not source:
            if source.key in found:
                problem = "is not the table declared with that key. Declare each table once."
            else:
                problem = "is in no module of the tables package. Import its module there."
            raise Refused(f"Table {wanted.key}: its input {source.key} {problem}")
        _add_after_inputs(source, found=found, ordered=ordered)
    ordered[wanted.key] = wanted
