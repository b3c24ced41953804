"""Calls an operation for several tables. A failure for one table does not stop the others."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from lakehouse.base.errors import LakehouseError
from lakehouse.declare.table import Table
from lakehouse.delta.log import garbage_uncollected

_READERS = 8

FoundValue = TypeVar("FoundValue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[FoundValue]):
    """The result or the error for one table.

    Both are `None` if the operation returned `None`, usually because the table does not exist yet.
    """

    table: Table
    value: FoundValue | None = None
    error: LakehouseError | None = None

    @property
    def reason(self) -> str:
        """Why there is no value, as one word for JSON documents."""
        return type(self.error).__name__.upper() if self.error else "NO_TABLE"

    @property
    def sentence(self) -> str:
        """Why there is no value, as a sentence."""
        return str(self.error) if self.error else "the table is declared, but does not exist yet"


def attempt(table: Table, operation: Callable[[Table], FoundValue | None]) -> Found[FoundValue]:
    """The result of an operation for one table, or its error, so that other tables can follow."""
    try:
        return Found(table=table, value=operation(table))
    except LakehouseError as error:
        return Found(table=table, error=error)


def for_each_table(
    tables: Sequence[Table], operation: Callable[[Table], FoundValue | None]
) -> list[Found[FoundValue]]:
    """Calls `operation` for each table, for several at once.

    Returns the results, or the errors of this program (`LakehouseError`), in the order of `tables`.
    """
    with garbage_uncollected(), ThreadPoolExecutor(max_workers=_READERS) as readers:
        return list(readers.map(partial(attempt, operation=operation), tables))
