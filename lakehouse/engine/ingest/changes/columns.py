"""The columns of change data, in tables and in intermediate rows, and the order of changes.

Changes are ordered by position and, if their positions are equal, by arrival (`change_order`).
"""

from typing import TYPE_CHECKING

from lakehouse.engine.ingest.parse_lines import ORIGIN
from lakehouse.engine.spark import functions as F  # noqa: N812
from lakehouse.engine.spark.statements import quote

if TYPE_CHECKING:
    from pyspark.sql import Column

# In the tables that change data is written to.
POSITION = "_position"
CHANGED_AT = "_changed_at"
DELETED = "_deleted"
# Names the columns whose values the row's change did not send, each with the order of the change
# that sent the value.
KEPT = "_kept"

# Only in the parsed lines.
OPERATION = "_lakehouse_operation"
# The key before an update that changed it. Parts that are unknown are null.
OLD_KEY = "_lakehouse_old_key"
CODE = "_lakehouse_code"
HAS_POSITION = "_lakehouse_has_position"
HAS_COMMIT_TIME = "_lakehouse_has_commit_time"
# The names of the columns whose values were not sent.
UNSENT = "_lakehouse_unsent"

# Only in the changes of a batch, and in remembered deletions.
# Whether a deletion comes from a truncation of the whole table.
TRUNCATED = "_truncated"
# Only in the changes of a batch.
# Whether the row replaces a row of the table that has the same position, because a late change gave
# it another kept value.
IS_CORRECTED = "_lakehouse_is_corrected"

_FILE, _LINE, _LANDED_AT = ORIGIN
_DIGITS = 40
# A name that ends in two numbers: `topic+partition+offset` of Kafka Connect, or the date and time
# of AWS DMS. The last part of a UUID may look the same.
_NUMBERED = "^(?:.*[^0-9A-Za-z])?[0-9]+[-+_.][0-9]+(?:[.][A-Za-z][^/]*)?$"
_UUID = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"


def change_order(row: str = "") -> str:
    """The SQL of a struct that increases with each change. `row` is empty, or an alias and a dot.

    Changes with the same position are ordered by their files, and then by line. Files with numbered
    names are ordered by their numbers, and other files by the time when they landed.
    """
    path, position, line, landed_at = (
        f"{row}{quote(name)}" for name in (_FILE, POSITION, _LINE, _LANDED_AT)
    )
    name = f"substring_index({path}, '/', -1)"
    # Leading zeros give all numbers in a name the same length, so that texts sort like numbers.
    padded = f"regexp_replace({name}, '([0-9]+)', '{'0' * _DIGITS}$1')"
    natural = f"regexp_replace({padded}, '[0-9]+?([0-9]{{{_DIGITS}}})(?![0-9])', '$1')"
    is_numbered = f"{name} RLIKE '{_NUMBERED}' AND NOT {name} RLIKE '{_UUID}'"
    return (
        f"struct({position} AS position, IF({is_numbered}, {natural}, '') AS numbered_name, "
        f"{landed_at} AS landed_at, {natural} AS name, {path} AS path, {line} AS line)"
    )


def is_newer() -> str:
    """The SQL condition that a row of alias `source` is newer than a row of alias `target`."""
    return f"{change_order('source.')} > {change_order('target.')}"


def no_kept() -> "Column":
    """The column `KEPT`, null, for rows that keep no values.

    Its type is that of an array whose entries have a column's name and a `change_order`.
    """
    entry = F.struct(F.lit("").alias("column"), F.expr(change_order()).alias("since"))
    return F.when(F.lit(False), F.array(entry))
