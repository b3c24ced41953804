"""The order of changes, which decides which of two changes of one key is newer.

Changes are ordered by position. Changes of equal positions are ordered by arrival: by file, and
within a file by line. `apply.py` keeps the newest change of each key.
"""

from lakehouse.engine.ingest.changes.columns import POSITION
from lakehouse.engine.ingest.parse_lines import ORIGIN
from lakehouse.engine.spark.statements import quote

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
