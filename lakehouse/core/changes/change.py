"""Operations of a source's table, and the columns that a table of versions has."""

from enum import Enum

# The columns that a table of versions has beside its rows.
HISTORY_COLUMNS = ("valid_from", "valid_to", "is_current")


class Operation(Enum):
    """What a change does. An insert, an update and a row of a snapshot are one: afterwards the key has this row."""

    UPSERT = "upsert"
    DELETE = "delete"
    TRUNCATE = "truncate"
