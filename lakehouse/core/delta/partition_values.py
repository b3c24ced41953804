"""The rule by which two spellings of partition values are one partition.

Source: delta-io/delta v4.4.0, `PartitionUtils.parsePartitionValue`: a value is cast to its column's type and compared as such; one
that cannot be cast is compared as it is spelled.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isnan, nan

from lakehouse.core.delta.snapshot import Column, type_of_partition

type_of_typed_partition = tuple[object, ...]


def typed_partition(
    partition: type_of_partition, columns: Mapping[str, Column]
) -> type_of_typed_partition:
    """A value that is equal for exactly those partitions that a condition takes for one; `columns` are the table's, by name."""
    return tuple(
        None
        if value is None
        else _cast(value, columns[name].type.split("(")[0] if name in columns else "string")
        for name, value in partition
    )


def signs(partition: type_of_partition) -> tuple[bool, ...]:
    """A flag for each value, true for a minus before it: OPTIMIZE groups files by hashes that tell 0.0 and -0.0 apart, conditions do not.

    Source: apache/spark v4.2.0, `literals.scala`, Literal.hashCode; delta-io/delta v4.4.0, groupFilesIntoBins.
    """
    return tuple(value is not None and value.startswith("-") for _, value in partition)


def by_name(columns: Sequence[Column]) -> Mapping[str, Column]:
    """Columns by their names."""
    return {column.name: column for column in columns}


def _cast(value: str, type_name: str) -> object:
    try:
        return _CASTS.get(type_name, str)(value)
    except (ValueError, ArithmeticError):
        return value


def _double(value: str) -> float:
    """NaN is one object, so that it is equal to itself, as it is for Spark."""
    found = float(value)
    return nan if isnan(found) else found


def _timestamp(value: str) -> datetime:
    """Without a zone it is one of the session's zone, and every session here has UTC."""
    parsed = datetime.fromisoformat(value)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


_CASTS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), int),
    "decimal": Decimal,
    **dict.fromkeys(("float", "double"), _double),
    "boolean": str.lower,  # true or false, in any case
    "date": date.fromisoformat,
    "timestamp": _timestamp,
    "timestamp_ntz": datetime.fromisoformat,
}
