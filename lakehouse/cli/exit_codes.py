"""Several tables, one exit code: what goes wrong with one table is told, and does not hide the others."""

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from lakehouse.cli.context import Found
from lakehouse.cli.output import tell
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient

_WORST_FIRST: tuple[type[LakehouseError], ...] = (Broken, Refused, Transient)


def tell_errors(found: Sequence[Found[Any]]) -> int:
    """The errors on standard error, each once; the code of the worst, 0 for none."""
    tell_once((each.table.key, f"{type(each.error).__name__}: {each.error}") for each in found if each.error)
    return worst_code(each.error.exit_code for each in found if each.error)


def tell_once(sentences: Iterable[tuple[str, str]]) -> None:
    """A line per sentence on standard error; of several that differ in the key of a table alone, the first, with the other tables."""
    tables: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for table, sentence in sentences:
        alike = sentence.replace(table, "\0").replace(quote(table, safe=""), "\0")
        tables.setdefault(alike, []).append(table)
        first.setdefault(alike, sentence)
    for alike, (_, *others) in tables.items():
        more = f" (the same of {len(others)} other table{'s' if len(others) > 1 else ''}: {', '.join(others)})" if others else ""
        tell(f"{first[alike]}{more}")


def worst_code(codes: Iterable[int]) -> int:
    """The worst of the errors' codes, 0 for none; the code of `Transient` only where trying again may help all."""
    return next(filter({*codes}.__contains__, (kind.exit_code for kind in _WORST_FIRST)), 0)


def absent_sentence(found: Found[Any]) -> tuple[str, str]:
    """Reason and sentence for a table without a value: no table yet, or the error's kind and text. A document holds them."""
    if found.error:
        return type(found.error).__name__.upper(), str(found.error)
    return "NO_TABLE", "the table is declared and does not exist yet: nothing was written to it"


def absent_cell(found: Found[Any]) -> str:
    """The sentence as a cell of a table for a person, to whom `tell_errors` tells the error."""
    return error_cell(type(found.error).__name__) if found.error else absent_sentence(found)[1]


def error_cell(kind: str) -> str:
    """What stands in the row of a table whose error, of this kind, is told on standard error."""
    return f"{kind}: told on standard error"
