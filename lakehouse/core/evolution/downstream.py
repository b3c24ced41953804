"""How a rebuild of a table affects the tables that read it."""

from collections.abc import Sequence
from dataclasses import dataclass

from lakehouse.core.declaration.table import Table
from lakehouse.core.declaration.write_modes import Append, Merge, Overwrite
from lakehouse.core.errors import Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class DownstreamReader:
    """A table that reads the rebuilt table.

    `waits`: it has read the table before, but not yet all new rows.
    """

    table: Table
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildEffect:
    """A rebuild of `table`, as far as it matters to tables that read it.

    - `has_same_rows`: the table is rebuilt from its own rows.
    - `has_other_columns`: the change data feed of earlier versions cannot be read afterwards.
    """

    table: Table
    has_same_rows: bool
    has_other_columns: bool

    def sentence_for(self, reader: DownstreamReader) -> str:
        """What the next run of a reader will do because of the rebuild."""
        key = reader.table.key
        write = reader.table.write
        # A table reads the changes of its first input, and all rows of its other inputs.
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
    """Refuses a change of columns while an `Append` that follows the table has unread changes.

    After the change, the `Append` could not read the change data feed of earlier versions.
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
