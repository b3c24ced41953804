"""Two spellings of partition values are one partition exactly where Delta takes them for one."""

from collections.abc import Sequence

import pytest

from lakehouse.delta.partition_values import (
    is_changed_by_rewrite,
    typed_partition,
)
from lakehouse.delta.snapshot import Column, PartitionValues, types_by_name

# As OPTIMIZE of Delta 4.4.0 put files together: for each type the spellings of one value, and those that are null to a reader.
SPELLINGS: dict[str, tuple[Sequence[Sequence[str]], Sequence[str]]] = {
    "int": (
        [["7", "007", " 7", "+7", "7.0"], ["0", "-0"], ["-7"]],
        ["", "abc", "1_0", "2147483648"],
    ),
    "date": (
        [["2013-01-01", "2013-1-1", " 2013-01-01", "2013-01-01 00:00:00", "2013"], ["0099-12-31"]],
        ["", "2013-13-01", "20130101"],
    ),
    "boolean": ([["true", "True", "t", "1", "yes"], ["false", "0"]], ["", "maybe"]),
    "decimal(6,2)": (
        [["1.5", "1.50", "1.500", "01.5", "15E-1"], ["1.51", "1.505"], ["-0.05"]],
        ["", "NaN", "10000"],
    ),
    "double": (
        [["1000.0", "1E3", "1000"], ["NaN", "nan"], ["Infinity", "inf"], ["-Infinity"], ["0.1"]],
        ["", "1_0"],
    ),
    "float": ([["0.1", "0.10000000001"], ["1E39", "inf"]], [""]),
    "timestamp": (
        [
            [
                "2013-01-01 05:00:00",
                "2013-01-01T05:00:00.000000Z",
                "2013-01-01T07:00:00+02:00",
                "2013-01-01T00:00:00-0500",
            ],
            ["2013-01-01", "2013-01-01 00:00:00"],
            ["1969-12-31 23:59:59.000001"],
        ],
        ["", "never"],
    ),
    "timestamp_ntz": (
        [["2013-01-01 05:00:00", "2013-01-01T05:00:00", "2013-01-01T05:00:00Z"]],
        [""],
    ),
    "string": ([[""], ["a"], ["A"], [" "], ["null"], ["NULL"]], []),
}


@pytest.mark.parametrize(("type_", "found"), SPELLINGS.items(), ids=SPELLINGS)
def test_spellings_are_one_value_as_for_delta(
    type_: str, found: tuple[Sequence[Sequence[str]], Sequence[str]]
) -> None:
    types = types_by_name([Column(name="p", type=type_)])
    values, nulls = found
    typed = [{typed_partition((("p", text),), types) for text in texts} for texts in values]
    assert [len(each) for each in typed] == [1] * len(values)
    assert len(set[object]().union(*typed)) == len(values)
    null = typed_partition((("p", None),), types)
    assert null not in set[object]().union(*typed)
    assert {typed_partition((("p", text),), types) for text in nulls} <= {null}


# a text column's value -> whether OPTIMIZE would write null in its place
TEXTS: dict[str | None, bool] = {"": True, "__HIVE_DEFAULT_PARTITION__": True, " ": False, "null": False, None: False}  # fmt: skip


@pytest.mark.parametrize(("value", "is_changed"), TEXTS.items())
def test_texts_that_optimize_turns_into_null_are_known(value: str | None, is_changed: bool) -> None:
    types = types_by_name([Column(name="n", type="int"), Column(name="p", type="string")])
    partition: PartitionValues = (("n", ""), ("p", value))
    assert is_changed_by_rewrite(partition, types) is is_changed
