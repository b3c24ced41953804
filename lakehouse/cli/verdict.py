"""Several tables, one exit code: what goes wrong with one table is told, and does not hide the others."""

from collections.abc import Sequence
from typing import Any

from lakehouse.cli.opened import Found
from lakehouse.cli.output import tell
from lakehouse.core.errors import Broken, LakehouseError, Refused, Transient

_WORST_FIRST: tuple[type[LakehouseError], ...] = (Broken, Refused, Transient)


def tell_errors(found: Sequence[Found[Any]]) -> None:
    """A line per error on standard error."""
    for each in found:
        if each.error:
            tell(f"{type(each.error).__name__}: {each.error}")


def exit_code(found: Sequence[Found[Any]]) -> int:
    """The code of the worst error, 0 for none; `Transient` only where trying again may help all."""
    errors = [each.error for each in found if each.error]
    return next((kind.exit_code for kind in _WORST_FIRST if any(isinstance(error, kind) for error in errors)), 0)


def absent_sentence(found: Found[Any]) -> tuple[str, str]:
    """Reason and sentence for a table without a value: no table yet, or the error's kind and text."""
    if found.error:
        return type(found.error).__name__.upper(), str(found.error)
    return "NO_TABLE", "the table is declared and does not exist yet: nothing was written to it"
