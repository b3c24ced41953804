"""Two spellings of partition values are one partition exactly where Delta takes them for one."""

import pytest

from lakehouse.core.delta.partition_values import by_name, typed_partition
from lakehouse.core.delta.snapshot import Column, type_of_partition

TYPES = {"n": "int", "day": "date", "price": "decimal(6,2)", "x": "double"}
COLUMNS = by_name([Column(name=name, type=type_) for name, type_ in TYPES.items()])

# one partition, another -> whether they are the same
PAIRS: dict[str, tuple[type_of_partition, type_of_partition, bool]] = {
    "spelled alike": ((("n", "5"),), (("n", "5"),), True),
    "another spelling": ((("n", "5"), ("price", "1.5")), (("n", "05"), ("price", "1.50")), True),
    "another value": ((("n", "5"), ("price", "1.5")), (("n", "5"), ("price", "1.51")), False),
    "null is no value": ((("n", None),), (("n", "0"),), False),
    "what cannot be cast is compared as it is spelled": ((("n", "five"),), (("n", "Five"),), False),
    "zeros are one, whatever their signs": ((("x", "0.0"),), (("x", "-0.0"),), True),
    "NaN is equal to itself": ((("x", "NaN"), ("n", "5")), (("x", "NaN"), ("n", "05")), True),
    "and takes no other value along": (
        (("day", "x"), ("n", "5")),
        (("day", "x"), ("n", "05")),
        True,
    ),
}


@pytest.mark.parametrize(("one", "other", "same"), PAIRS.values(), ids=PAIRS)
def test_values_are_compared_as_their_type(
    one: type_of_partition, other: type_of_partition, same: bool
) -> None:
    assert (typed_partition(one, COLUMNS) == typed_partition(other, COLUMNS)) is same
