"""How a rebuild of a table affects the tables that read it."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, Merge, Overwrite
from lakehouse.core.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamReader:
    """A table that reads the rebuilt table. `waits`: it has not read all changes yet."""

    table: Table
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildEffect:
    """How a rebuild of a table affects the tables that read it."""

    table: Table
    has_same_rows: bool
    has_other_columns: bool

    def sentence_for(self, reader: DownstreamReader) -> str:
        """What the next run of this reader will do."""
        key = reader.table.key
        write = reader.table.write
        # A reader follows the changes of its first input.
        is_followed = reader.table.inputs[0].key == self.table.key
        if self.has_same_rows:
            is_interrupted = self.has_other_columns and reader.waits and is_followed
            if is_interrupted and isinstance(write, Merge):
                return f"{key} (Merge) reads all of {self.table.key} once, under its new columns"
            return f"{key} ({type(write).__name__}) skips the rebuild, since the rows are the same"
        if isinstance(write, Overwrite):
            return f"{key} (Overwrite) computes all its rows again"
        if not is_followed:
            return (
                f"{key} ({type(write).__name__}) uses the new rows in its later runs; its present"
                " rows stay"
            )
        if isinstance(write, Merge):
            return (
                f"{key} (Merge) merges all rows once, but only rows that are newer by "
                f"{', '.join(write.order_by)} replace its present rows. Use `lakehouse rebuild "
                f"{key}` to compute all its rows again"
            )
        return (
            f"{key} (Append) stops, since it would append rows twice. Use `lakehouse rebuild "
            f"{key}` afterwards"
        )


def refuse_waiting_readers(table: Table, readers: Sequence[DownstreamReader]) -> None:
    """Refuses a change of columns while an `Append` has not read all rows.

    It could not read them under the new columns.
    """
    waiting = list[str]()
    for reader in readers:
        is_append = isinstance(reader.table.write, Append)
        if reader.waits and is_append and reader.table.inputs[0].key == table.key:
            waiting.append(reader.table.key)
    if waiting:
        raise Refused(
            f"rebuild of {table.key}: not all its rows have been read by {', '.join(waiting)} "
            "(Append), and they cannot be read after the columns have changed. Use `lakehouse "
            f"materialize {waiting[0]}` first"
        )
