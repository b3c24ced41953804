"""The columns of change data in tables and intermediate rows, and the order of changes.

Changes are ordered by position. Changes of equal positions are ordered by arrival: by file, and
within a file by line. `run.py` keeps the newest change of each key.
"""

from lakehouse.land.parse_lines import ORIGIN
from lakehouse.spark.statements import quote

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
# The names of the columns whose values were not sent.
UNSENT = "_lakehouse_unsent"

# In the changes of a batch, and in remembered deletions: whether a deletion comes from a truncation
# of the whole table.
TRUNCATED = "_truncated"
# In the changes of a batch: whether the row is the table's own row, with a kept value that a late,
# older change of its key corrects. It replaces the table's row, although it is not newer.
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
    names are ordered by name, with numbers compared as numbers. Before them come all other files,
    ordered by the time when they landed.
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
