"""Names and values reach SQL whole, or not at all."""

import pytest
from pyspark.sql import SparkSession

from lakehouse.base.errors import Refused
from lakehouse.delta.snapshot import Column
from lakehouse.spark import statements

ODD_TEXTS = [
    "it's",
    'a "b" `c`',
    "back\\slash \\' \\u0041",
    "tab\tline\nfeed\rnul\0del\x7f",
    "ü %20 日本 😀",
    "",
    "-- x",
    "${spark.app.id}",
]


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("a", "`a`"), ("a b", "`a b`"), ("a`; DROP TABLE t --", "`a``; DROP TABLE t --`")],
)
def test_a_name_stays_between_its_backticks(name: str, quoted: str) -> None:
    assert statements.quote(name) == quoted


@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "a\rb", "a${spark.app.id}b"])
def test_a_name_that_no_column_can_have_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="cannot be used in SQL"):
        statements.quote(name)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [("it's", r"'it\'s'"), ("a\\", r"'a\\'"), ("${x}", r"'\u0024{x}'"), ("a\nb", r"'a\u000ab'")],
)
def test_a_text_stays_between_its_quotes(text: str, quoted: str) -> None:
    assert statements.literal(text) == quoted


def test_a_literal_means_exactly_its_text(spark: SparkSession) -> None:
    selected = spark.sql(
        f"SELECT {', '.join(statements.literal(text) for text in ODD_TEXTS)}"
    ).collect()[0]
    assert list(selected) == ODD_TEXTS


def test_partitions_are_named_by_their_values() -> None:
    columns = [
        Column(name="id", type="bigint"),
        Column(name="day", type="date"),
        Column(name="o'clock", type="string"),
    ]
    partitions = [
        (("day", "2013-01-01"), ("o'clock", "it's 5")),
        (("day", "2013-01-01"), ("o'clock", None)),
        (("day", None), ("o'clock", "6")),
    ]
    assert statements.partition_predicate(columns, partitions) == (
        r"struct(`day`, `o'clock`) IN (struct(CAST('2013-01-01' AS date), CAST('it\'s 5' AS string)), "
        "struct(CAST('2013-01-01' AS date), CAST(NULL AS string)), "
        "struct(CAST(NULL AS date), CAST('6' AS string)))"
    )


def test_a_partition_type_that_is_no_plain_word_is_refused() -> None:
    with pytest.raises(Refused, match="by a column of type"):
        statements.partition_predicate([Column(name="p", type="int) OR (1=1")], [(("p", "1"),)])
